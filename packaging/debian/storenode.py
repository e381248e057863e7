#!/usr/bin/python3 -IS
"""The command of the package: this Python's standard library, and the folder of the package."""

import sys

sys.path.append("/usr/lib/storenode")

from storenode import main

sys.exit(main())
