"""Makes the packages in a folder importable by the interpreter that runs this: `python link.py FOLDER`."""

import pathlib
import sys
import sysconfig

link = pathlib.Path(sysconfig.get_path("purelib"), "prism_optim.pth")
wanted = str(pathlib.Path(sys.argv[1]).resolve()) + "\n"
if not link.exists() or link.read_text() != wanted:
    link.write_text(wanted)
