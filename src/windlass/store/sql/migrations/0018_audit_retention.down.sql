drop function windlass.expire_audit_v1(double precision, integer);
