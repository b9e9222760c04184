"""What XLA's CPU compiler fuses and combines: one backend of the model of memory."""
