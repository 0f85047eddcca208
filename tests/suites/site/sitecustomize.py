"""Adds the folders of SUITES_SITES with their .pth files, for Python programs that tests start, too."""

import os
import site

for folder in os.environ.get("SUITES_SITES", "").split(os.pathsep):
    if folder:
        site.addsitedir(folder)
