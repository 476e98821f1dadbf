drop table windlass.known_name;
