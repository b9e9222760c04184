"""Runs `sporax` commands, each in a process of its own that is forked from this one, which has imported what they need.

Importing is most of what a small command costs. A line of the input is a request as JSON: `arguments`, `folder`, `environ`, and
the files `out` and `err`; the line that is printed for it is the exit code.
"""

import gc
import json
import os
import runpy
import sys
import warnings

gc.freeze()  # a command that ends would look at all that was imported, page after page that it shares with this process
request = {}
for line in sys.stdin:
    request = json.loads(line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks, as its threads are lost: none has started yet
        process = os.fork()
    if not process:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
else:
    sys.exit()
for number, file in ((1, request["out"]), (2, request["err"])):
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
os.chdir(request["folder"])
os.environ.clear()
os.environ.update(request["environ"])
sys.argv[1:] = request["arguments"]
del gc, json, os, warnings, line, number, file, process, request
runpy.run_module("sporax", run_name="__main__", alter_sys=True)
