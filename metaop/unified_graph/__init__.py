"""The shared language of all rooms: types, index maps, nodes, composites, recording, cutting."""
