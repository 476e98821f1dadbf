drop view windlass."check";
