"""Safe model files: fitted models as documented, checked data; nothing in them is ever run."""
