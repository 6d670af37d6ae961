"""A structure-aware fuzzer: small models of many kinds, damaged in many ways, through the commands that read files.

python -m bench.fuzz --seed 1 --count 200
python -m bench.fuzz --replay fuzz-failures/1-37

"""
