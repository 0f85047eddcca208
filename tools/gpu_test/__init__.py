"""Tests of Causeway on a machine with a GPU, by Python's standard library alone.

| module            | question it answers                                                                |
|-------------------|------------------------------------------------------------------------------------|
| `cli`             | What was asked for, and in which order is it done?                                  |
| `session`         | What is a part given: ways to run a command, and what of it is wanted?               |
| `commands`        | How does a command run with a time limit, and how did it end?                       |
| `server`          | How is a `causeway serve` started, kept alive and ended?                             |
| `report`          | What passed and failed: as Markdown, JSON and JUnit XML?                             |
| `bundle`          | Where are the programs, and on which machine are we?                                |
| `requirements`    | What must the yardstick's figures be?                                               |
| `training_steps`  | What is one step of training? (a program of its own, which needs PyTorch)            |
| `parts`           | One module a part of `gpu-test.sh`                                                  |
| `apps`            | What do the applications of bench/apps lose by being remote?                        |
"""
