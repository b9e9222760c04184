"""Facts about this process: compilation cache, host allocator, living objects, dry run."""
