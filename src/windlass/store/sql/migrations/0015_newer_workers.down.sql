drop index windlass.held_newer;
