"""What people see of a plan: values (`view`), pages (`pictures`), answers to `questions`, the terminal (`console`)."""
