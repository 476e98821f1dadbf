drop function windlass.settle_v1;
drop function windlass.claim_v1;
drop function windlass.microseconds;
