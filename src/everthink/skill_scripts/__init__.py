"""What runs the scripts of skills, in our sandboxes: JavaScript, TypeScript, Python and bash.

`everthink.skills.runner(...)` makes one.
"""
