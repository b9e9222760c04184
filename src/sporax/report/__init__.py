"""What people see of a plan: its view model (`view`, `summarize`), text and pages (`render`), `questions`."""
