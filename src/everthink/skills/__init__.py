"""Agent Skills: instructions that a model reads when a task calls for them, with the files they come with."""
