-- serves: 7
-- Jobs that wait for a worker of a newer version, by type and by the fields it must know. Most of the time there are none.
create index held_newer on windlass.held (type, reason) where reason like 'needs newer worker%';
