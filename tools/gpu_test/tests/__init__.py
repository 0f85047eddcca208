"""Tests of what can be tested without a GPU: python3 -m unittest discover -s tools/gpu_test/tests -t tools"""
