"""Jobs of several processes as plain data: the model, its drawing, and the directories of its processes (VS 4.3)."""
