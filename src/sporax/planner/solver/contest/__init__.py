"""Reader, generator and command of the IOPDDL contest's format."""
