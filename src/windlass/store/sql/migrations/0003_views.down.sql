drop view windlass."check";
drop view windlass.known;
drop view windlass.tallied;
