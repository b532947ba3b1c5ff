"""Accuracy of jointleaf and its peers on PMLB, everything out of the box, on one core.

python -m benchmarks.accuracy run --data FOLDER
python -m benchmarks.accuracy report
"""
