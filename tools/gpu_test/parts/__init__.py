"""The parts of `gpu-test.sh`: each runs what it is asked for, and tells the session's report what passed and
failed."""
