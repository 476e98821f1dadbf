drop table windlass.leader, windlass.tally, windlass.counter, windlass.idempotency, windlass.queue,
  windlass.reservation, windlass.step, windlass.idle, windlass.worker, windlass.horizon, windlass.attempt_kept, windlass.attempt,
  windlass.outcome_kept, windlass.outcome, windlass.running, windlass.ready, windlass.held, windlass.scheduled,
  windlass.tag_kept, windlass.tag, windlass.job_kept, windlass.job;
