"""The applications of bench/apps: what do they lose by being remote?

| module         | question it answers                                                            |
|----------------|--------------------------------------------------------------------------------|
| `__main__`     | Which of them, on which server, reported where? (`python3 tools/gpu_test/apps`) |
| `applications` | Which are there, at which sizes do they run, and what was published?            |
| `campaign`     | How do they run each way in turns?                                              |
| `overhead`     | What do their times say?                                                        |
"""
