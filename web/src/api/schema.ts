// Generated from the OpenAPI document by tools/openapi_types.py. Do not edit: run `make web-types`.

/** A welcome mail, by `email` and `name`; or a whole job. */
export interface AddedJob {
  payload?: unknown;
  id?: string | null;
  queue?: string | null;
  priority?: number | null;
  thread_demand?: number | null;
  scheduled_at?: string | null;
  delay_s?: number | null;
  max_attempts?: number | null;
  timeout_s?: number | null;
  retry?: Retry | null;
  tags?: string[];
  idempotency_key?: string | null;
  if_too_wide?: "fail" | "narrow" | "wait" | null;
  type?: string | null;
  name?: string | null;
  email?: string | null;
}

/** `key` is shown once, when it is made. */
export interface ApiKey {
  id: string;
  name: string;
  prefix: string;
  scopes: string[];
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
  key?: string | null;
  quota?: Quota | null;
  namespace?: string | null;
}

export interface ApiKeys {
  keys: ApiKey[];
}

/** One attempt that has ended. */
export interface Attempt {
  attempt: number;
  status: string;
  worker_id: string | null;
  started_at: string | null;
  ended_at: string;
  error: Fault | null;
}

export interface Attempts {
  attempts: Attempt[];
}

export interface Audit {
  entries: AuditEntry[];
  next_cursor?: string | null;
}

export interface AuditEntry {
  id: number;
  at: string;
  actor: string;
  action: string;
  target: string | null;
  detail: unknown | null;
  request_id: string | null;
}

/** What is done to many jobs: those named, or those a filter finds. `preview`: nothing is done, only counted. */
export interface BulkAction {
  ids?: string[] | null;
  filter?: Filter | null;
  preview?: boolean;
  limit?: number;
  cursor?: string | null;
  reason?: string | null;
}

/** What was done. `matched`: how many the filter found in this call; `next_cursor`: there may be more. */
export interface BulkResult {
  matched: number;
  done: number;
  preview: boolean;
  refused: Refused[];
  sample: string[];
  next_cursor?: string | null;
}

/** One mail in a list. `from` and `to` are those of its envelope, `size` its length in bytes. */
export interface CaughtMailLine {
  id: string;
  received_at: string;
  from: string;
  to: string[];
  subject: string;
  size: number;
}

/** One mail. `text` and `html` are its bodies, `source` the beginning of it as it was sent. */
export interface CaughtMailShown {
  id: string;
  received_at: string;
  from: string;
  to: string[];
  subject: string;
  size: number;
  headers: ([string, string])[];
  text: string | null;
  html: string | null;
  source: string;
}

/** The newest first. */
export interface CaughtMails {
  mails: CaughtMailLine[];
}

export interface Configuration {
  settings: SettingInEffect[];
}

/** Failed jobs with the same kind of error, newest first among those looked at. */
export interface DeadLetterGroup {
  type: string;
  error_type: string;
  message: string;
  fingerprint: string | null;
  count: number;
  first_at: string;
  last_at: string;
  sample: string[];
}

/** `complete`: false if there are more failed jobs than were looked at. */
export interface DeadLetterGroups {
  groups: DeadLetterGroup[];
  jobs: number;
  complete: boolean;
}

/** How many jobs have failed for good, since when the oldest of them has, and about how many bytes they take on disk. `retention_days`: after so many days they are removed; null: they are kept for ever. */
export interface DeadLetterTotals {
  count: number;
  oldest_at: string | null;
  approximate_bytes: number;
  retention_days: number | null;
}

/** Whether an effect that may have happened has happened. `effect`: its key, where several wait. */
export interface Decide {
  decision: "done" | "redo";
  effect?: string | null;
}

export interface DiscardReason {
  reason?: string;
}

/** Why a job is where it is. `ahead`: how many of its queue go first, as far as was counted. `submitter`: whose quotas an unfinished job counts against. */
export interface Explanation {
  id: string;
  status: "cancelled" | "completed" | "failed" | "held" | "ready" | "running" | "scheduled";
  summary: string;
  obstacles: Obstacle[];
  ahead?: number | null;
  workers_able?: number;
  workers_free?: number;
  submitter?: SubmitterUse | null;
}

export interface FailedJobs {
  jobs: PlainJob[];
  page: number;
  limit: number;
  total: number;
}

/** Why an attempt did not succeed. */
export interface Fault {
  type: string;
  message: string;
  traceback?: string;
}

/** Which jobs. Everything given must hold. */
export interface Filter {
  type?: string | null;
  queue?: string | null;
  tag?: string | null;
  created_after?: string | null;
  created_before?: string | null;
  finished_after?: string | null;
  finished_before?: string | null;
  fingerprint?: string | null;
  worker?: string | null;
  text?: string | null;
  status?: ("cancelled" | "completed" | "failed" | "held" | "pending" | "ready" | "running" | "scheduled")[];
  reason?: string | null;
}

/** `ok`: everything that work depends on is well. Redis only makes it quicker. */
export interface Health {
  ok: boolean;
  version: string;
  parts: HealthPart[];
}

/** One thing that work depends on, or that makes it quicker. */
export interface HealthPart {
  name: string;
  ok: boolean;
  detail: string;
}

/** A job. `payload` and `result` are as they were given, number for number; lists leave them out. `started_at` and `error` are those of the last attempt; while a job waits to be tried again, `next_try_at` says from when on. `expires_at`: when a failed job is removed; null: never. */
export interface Job {
  id: string;
  type: string;
  status: "cancelled" | "completed" | "failed" | "held" | "ready" | "running" | "scheduled";
  reason: string | null;
  name: string | null;
  queue: string;
  priority: number;
  thread_demand: number;
  threads_granted: number | null;
  attempts: number;
  failures: number;
  max_attempts: number;
  timeout_s: number;
  retry: Retry | null;
  if_too_wide: "fail" | "narrow" | "wait";
  tags: string[];
  idempotency_key: string | null;
  created_at: string;
  updated_at: string;
  scheduled_at: string | null;
  ready_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  queue_s: number | null;
  execution_s: number | null;
  total_s: number | null;
  worker_id: string | null;
  cancel_requested: boolean;
  progress: number | null;
  progress_note: string | null;
  error: Fault | null;
  next_try_at?: string | null;
  expires_at?: string | null;
  payload?: unknown | null;
  result?: unknown | null;
}

/** A type some worker has declared: what its jobs have where they say nothing else, in full, and the schema of its payload. `alive`: some living worker knows it. `served_by`: how many living workers know it and claim from its queue. `versions`: how many different declarations of it living workers have; two during a deploy. */
export interface JobType {
  name: string;
  queue: string;
  priority: number;
  thread_demand: number;
  max_attempts: number;
  timeout_s: number;
  retry: Retry;
  tags: string[];
  if_too_wide: "fail" | "narrow" | "wait";
  isolation: "none" | "process";
  at_most_once: boolean;
  alive: boolean;
  versions?: number;
  served_by?: number;
  description?: string | null;
  payload_schema?: unknown | null;
}

export interface JobTypes {
  types: JobType[];
  next_cursor?: string | null;
}

/** A page, newest first. `next_cursor` is null on the last one. */
export interface Jobs {
  jobs: Job[];
  next_cursor?: string | null;
}

/** How many jobs of a queue and type are in a status. */
export interface Line {
  queue: string;
  type: string;
  status: "cancelled" | "completed" | "failed" | "held" | "ready" | "running" | "scheduled";
  count: number;
}

/** What an attempt wrote. `running`: it goes on, and this is what it has written so far. */
export interface Log {
  attempt: number;
  text: string;
  running?: boolean;
}

/** A user's name and password, or an API key. */
export interface Login {
  username?: string | null;
  password?: string | null;
  api_key?: string | null;
  scopes?: ("admin" | "operate" | "read" | "submit")[] | null;
}

export interface Logs {
  logs: Log[];
}

/** `quotas`: those of the caller, and what counts against each. */
export interface Me {
  subject: string;
  scopes: string[];
  expires_at: string | null;
  namespace?: string | null;
  quotas?: QuotaUse[];
}

/** Where a job is after an action. `running` after a cancel: its worker was asked to stop it. */
export interface Moved {
  id: string;
  status: "cancelled" | "completed" | "failed" | "held" | "ready" | "running" | "scheduled";
}

export interface NamedStored {
  job_id: string;
  id: string;
  status: "cancelled" | "completed" | "failed" | "pending" | "running";
}

/** A job by the name of its type, and a text for it. A payload that is no text goes to the job as it is. */
export interface NamedTask {
  name: string;
  payload?: unknown;
  priority?: number | null;
}

export interface NewKey {
  name: string;
  scopes: ("admin" | "operate" | "read" | "submit")[];
  ttl_s?: number | null;
  quota?: Quota | null;
  namespace?: string | null;
}

export interface NewNamespace {
  namespace: string | null;
}

export interface NewPassword {
  password: string;
}

export interface NewScopes {
  scopes: ("admin" | "operate" | "read" | "submit")[];
}

export interface NewUser {
  name: string;
  password: string;
  scopes: ("admin" | "operate" | "read" | "submit")[];
  quota?: Quota | null;
  namespace?: string | null;
}

/** One reason why a job does not run yet: a stable code, what it means here, and what would help. */
export interface Obstacle {
  code: string;
  detail: string;
  cure?: string | null;
}

/** A job with its times, in seconds: waiting for a worker, running, and from submission to end. */
export interface PastJob {
  id: string;
  type: string;
  name: string | null;
  payload: unknown | null;
  status: "cancelled" | "completed" | "failed" | "pending" | "running";
  priority: number;
  thread_demand: number;
  attempts: number;
  max_attempts: number;
  scheduled_at: string;
  started_at: string | null;
  completed_at: string | null;
  created_at: string;
  updated_at: string;
  result: unknown | null;
  error: string | null;
  next_try_at: string | null;
  queue_time: number | null;
  execution_time: number | null;
  total_time: number | null;
}

export interface PlainJob {
  id: string;
  type: string;
  name: string | null;
  payload: unknown | null;
  status: "cancelled" | "completed" | "failed" | "pending" | "running";
  priority: number;
  thread_demand: number;
  attempts: number;
  max_attempts: number;
  scheduled_at: string;
  started_at: string | null;
  completed_at: string | null;
  created_at: string;
  updated_at: string;
  result: unknown | null;
  error: string | null;
  next_try_at: string | null;
}

export interface PlainStats {
  completed: number;
  failed: number;
  pending: number;
  running: number;
}

export interface PlainStored {
  id: string;
  status: "cancelled" | "completed" | "failed" | "pending" | "running";
}

/** RFC 9457. `code` is stable; `field` is the path of what is wrong. `quota`, `limit`, `current`: the quota that it is about, and what counts against it. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  instance?: string | null;
  request_id?: string | null;
  field?: string | null;
  quota?: string | null;
  limit?: number | null;
  current?: number | null;
  errors?: Refused[];
}

/** A queue that has jobs or settings. `served_by`: how many living workers claim from it. */
export interface Queue {
  name: string;
  paused: boolean;
  depth: number;
  oldest_age_s: number | null;
  statuses: Record<string, number>;
  served_by?: number;
}

export interface Queues {
  queues: Queue[];
  next_cursor?: string | null;
}

/** What a user or API key may submit; what is left out, or null, has no limit. `waiting`: jobs that wait. `threads`: of its unfinished jobs together. `thread_demand`, `timeout_s`: of one job. */
export interface Quota {
  waiting?: number | null;
  threads?: number | null;
  thread_demand?: number | null;
  timeout_s?: number | null;
  submissions_per_s?: number | null;
}

/** A quota, and what counts against it; null where nothing is counted. */
export interface QuotaUse {
  quota: string;
  limit: number;
  current: number | null;
}

export interface Reason {
  reason?: string;
}

export interface Refresh {
  refresh_token: string;
}

/** Why one job of many was not stored, or not acted on. */
export interface Refused {
  code: string;
  detail: string;
  index?: number | null;
  id?: string | null;
  field?: string | null;
}

/** How long a failed job waits: base_s × factor^(failures − 1), at most cap_s, then ± jitter of that. */
export interface Retry {
  base_s?: number;
  factor?: number;
  cap_s?: number;
  jitter?: number;
}

/** Points from `start` on, one every `step_s` seconds; the last step is not over. */
export interface Series {
  start: string;
  step_s: number;
  groups: SeriesGroup[];
}

/** One line: for each step, how many jobs completed, failed for good and were cancelled, how many attempts are tried again, and percentiles of the time until pickup and of the run time, in seconds. With `by` the percentiles are left out. */
export interface SeriesGroup {
  queue: string | null;
  type: string | null;
  completed: number[];
  failed: number[];
  cancelled: number[];
  retried: number[];
  queue_p50_s: (number | null)[];
  queue_p95_s: (number | null)[];
  queue_p99_s: (number | null)[];
  execution_p50_s: (number | null)[];
  execution_p95_s: (number | null)[];
  execution_p99_s: (number | null)[];
}

/** One setting of this API process. Secrets are named, never shown. */
export interface SettingInEffect {
  variable: string;
  value: string;
  is_default: boolean;
  meaning: string;
}

/** Exact counts. `complete`: whether `lines` are all there are; else they are those with the most jobs. `needs_decision`: how many of the held jobs wait for a person to decide. It and `dead_letters` are null in the stream of events. */
export interface Stats {
  total: number;
  statuses: Record<string, number>;
  lines: Line[];
  complete?: boolean;
  dead_letters?: DeadLetterTotals | null;
  needs_decision?: number | null;
}

/** The answer to a submission. `duplicate`: it was there already, under the same id or idempotency key. `payload_checked`: its payload fits what the workers of its type declare; false: that is not known yet. */
export interface Stored {
  id: string;
  status: "cancelled" | "completed" | "failed" | "held" | "ready" | "running" | "scheduled";
  duplicate?: boolean;
  payload_checked?: boolean;
}

/** The answer to a bulk submission: all are stored, or none. */
export interface StoredMany {
  ids: string[];
  duplicates?: number;
  payloads_unchecked?: number;
}

/** A job to be stored. What is left out is as its type declares it. */
export interface Submission {
  type: string;
  payload?: unknown;
  id?: string | null;
  name?: string | null;
  queue?: string | null;
  priority?: number | null;
  thread_demand?: number | null;
  scheduled_at?: string | null;
  delay_s?: number | null;
  max_attempts?: number | null;
  timeout_s?: number | null;
  retry?: Retry | null;
  tags?: string[];
  idempotency_key?: string | null;
  if_too_wide?: "fail" | "narrow" | "wait" | null;
}

/** A user, API key or other subject, and its quotas. */
export interface SubmitterUse {
  subject: string;
  quotas: QuotaUse[];
}

export interface ThreadMap {
  workers: WorkerThreads[];
}

/** A job and how many threads it holds. `isolated`: it runs in a process of its own. `stuck`: it was to stop, and its handler does not. */
export interface ThreadUse {
  job_id: string;
  type: string;
  name: string | null;
  threads: number;
  state: "isolated" | "running" | "stuck";
  started_at: string;
}

export interface Token {
  access_token: string;
  token_type: "Bearer";
  expires_in: number;
  scopes: string[];
  refresh_token?: string | null;
}

export interface User {
  name: string;
  scopes: string[];
  created_at: string;
  quota?: Quota | null;
  namespace?: string | null;
}

export interface Users {
  users: User[];
}

/** One worker process. `stopped`: it left as it was told to; `dead`: it crashed, was killed, or lost its lease. `jobs`: those it has claimed; `claimed` of them have not begun, and hold no thread yet. `version`: of Windlass. `memory_bytes`: of its process at the last heartbeat, without the processes of isolated jobs. */
export interface Worker {
  id: string;
  name: string;
  status: "busy" | "dead" | "draining" | "idle" | "stopped";
  threads: number;
  busy_threads: number;
  lost_threads: number;
  jobs: number;
  queues: string[];
  types: string[];
  supervisor_id: string | null;
  started_at: string;
  renewed_at: string;
  died_at: string | null;
  reserved_for: string | null;
  claimed?: number;
  version?: string | null;
  memory_bytes?: number | null;
}

/** What a living worker runs, in the order in which it was claimed. `claimed`: how many more jobs it has claimed and not begun. */
export interface WorkerThreads {
  id: string;
  claimed: number;
  memory_bytes: number | null;
  running: ThreadUse[];
}

export interface Workers {
  workers: Worker[];
  next_cursor?: string | null;
}
