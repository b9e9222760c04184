"""`python -m sporax.launch.servers.ps_process scheduler|server PIPE`: a parameter-server process that ends with its launcher."""

import sys

from sporax.launch.jobs.rank import end_with_launcher
from sporax.ps.process import main

if __name__ == "__main__":
    end_with_launcher(int(sys.argv[2]), inherit=False)
    sys.exit(main(sys.argv[1]))
