"""Starting and watching the ranks of a job."""
