"""What a verification costs against the size of the model: memory, time, cases; `python -m bench.scale`."""
