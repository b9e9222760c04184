"""Pages and pictures of a plan: HTML, SVG, timelines."""
