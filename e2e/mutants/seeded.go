package mutants

// Suites that several mutants are given to.
var (
	verdicts = Suite{"./engine", "^TestWhatARunReturnsDecidesWhatBecomesOfItsJob$"}
	states   = Suite{"./engine", "^TestEveryActFollowsTheTableOfStates$"}
	orders   = Suite{"./engine", "^TestInterleavings$"}
	promised = Suite{"./engine", "^(TestEveryWriteWaitsForTheDisk|TestTheWorkersClockDecidesNothing|TestAnAnswerComesAfterTheCommit|TestACommitWithoutAnAnswerIsNeither|TestAFinishWithoutAnAnswerCountsOnce)$"}
	renewed  = Suite{"./engine", "^TestALeaseThatIsBeingRenewedIsLeftAlone$"}
	living   = Suite{"./engine/verify", "^TestALiveSystemBreaksNoRule$"}
	keys     = Suite{"./engine", "^(TestE1|TestE2|TestE3)"}
	leases   = Suite{"./engine", "^(TestB10TheResultOfSomethingGoneIsDroppedOnce|TestAJobWhoseLeaseWasLostDoesNotStart)$"}
)

// life is the life scripts of these names. Their moves and what they leave are
// judged as well.
func life(scripts string) Suite { return Suite{"./engine", "^TestLife$/^(" + scripts + ")$"} }

const (
	claimSQL  = "engine/internal/dbsqlc/claim.sql.go"
	finishSQL = "engine/internal/dbsqlc/finish.sql.go"
	reaperSQL = "engine/internal/dbsqlc/reaper.sql.go"
	leaseSQL  = "engine/internal/dbsqlc/lease.sql.go"
	deadSQL   = "engine/internal/dbsqlc/deadletter.sql.go"
)

// How enqueue_job_keyed takes an idempotency key, down to the line that the
// definition before it does not have.
const (
	keyByConflict = `        INSERT INTO idempotency_keys AS k (scope, key, request_hash, job_id, expires_at)
        VALUES ('enqueue', idempotency_key, hash, new_id, now() + make_interval(secs => key_ttl_seconds))
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
          SET request_hash = excluded.request_hash, job_id = excluded.job_id, created_at = now(), expires_at = excluded.expires_at
          WHERE k.expires_at <= now();
        EXIT WHEN FOUND;
      EXCEPTION WHEN lock_not_available THEN
        job_id := NULL;
        outcome := 'in_flight';
        RETURN NEXT;
        RETURN;
      END;
      SELECT k.* INTO first FROM`
	keyBySelect = `        PERFORM 1 FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.expires_at > now();
        IF NOT FOUND THEN
          INSERT INTO idempotency_keys AS k (scope, key, request_hash, job_id, expires_at)
          VALUES ('enqueue', idempotency_key, hash, new_id, now() + make_interval(secs => key_ttl_seconds));
          EXIT;
        END IF;
      EXCEPTION WHEN lock_not_available THEN
        job_id := NULL;
        outcome := 'in_flight';
        RETURN NEXT;
        RETURN;
      END;
      SELECT k.* INTO first FROM`
)

// All are the seeded defects.
var All = []Mutant{
	{"no-token-check", "a finish closes whatever run of its job is open, not the one it held",
		[]Edit{{finishSQL, "FROM x JOIN live ON live.id = x.token\n  RETURNING",
			`FROM (SELECT x.job_id, coalesce((SELECT max(c.id) FROM job_claims AS c WHERE x.job_id = ANY(c.job_ids)), x.token) AS token, x.attempt,
    x.started_at, x.wait_ms, x.token AS held FROM x) AS x LEFT JOIN live ON live.id = x.held
  RETURNING`}},
		[]Suite{life("stale_worker_cannot_complete"), leases}},
	{"reap-without-lock", "the reaper takes a lease that was renewed since it looked",
		[]Edit{{reaperSQL, "DELETE FROM job_claims AS k WHERE k.ctid = ANY(ARRAY(\n    SELECT x.ctid FROM (\n      SELECT y.ctid, sum(",
			"DELETE FROM job_claims AS k WHERE k.id = ANY(ARRAY(\n    SELECT x.id FROM (\n      SELECT y.id, sum("},
			{reaperSQL, "ORDER BY c.id LIMIT 100 FOR UPDATE SKIP LOCKED) AS y) AS x", "ORDER BY c.id LIMIT 100) AS y) AS x"}},
		[]Suite{renewed}},
	{"attempt-counted-late", "a failure is not among the attempts that the job takes along",
		[]Edit{{"engine/outcome.go", "carried: row.Attempt, class: classOf(err)", "carried: row.Attempt - 1, class: classOf(err)"}},
		[]Suite{verdicts}},
	{"workers-clock", "a heartbeat renews the lease by the worker's clock",
		[]Edit{{leaseSQL, "SET lease_expires_at = now() + make_interval(secs => $1::float8)", "SET lease_expires_at = to_timestamp($1::float8)"},
			{"engine/lease.go", "b.Queue(dbsqlc.RenewLeases, e.cfg.LeaseDuration.Seconds(), e.workerID, asked)",
				"b.Queue(dbsqlc.RenewLeases, float64(time.Now().Add(e.cfg.LeaseDuration).UnixNano())/1e9, e.workerID, asked)"}},
		[]Suite{promised}},
	{"answer-before-commit", "an enqueue answers while its transaction is still open",
		[]Edit{{"engine/client.go", "	done, err := c.enqueueOne(ctx, r)\n", `	tx, err := c.pool.Begin(ctx)
	if err != nil {
		return Enqueued{}, err
	}
	done, err := c.insert(ctx, tx, r, false)
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = tx.Commit(context.Background())
	}()
`}},
		[]Suite{promised}},
	{"commit-repeated-blindly", "an enqueue whose answer was lost is done again under another id",
		[]Edit{{"engine/client.go", "	done, err := c.enqueueOne(ctx, r)\n", `	done, err := c.enqueueOne(ctx, r)
	if err != nil {
		if again, mistake := c.prepare(args, o); mistake == nil {
			r = again
			done, err = c.enqueueOne(ctx, r)
		}
	}
`}},
		[]Suite{promised}},
	{"commit-error-is-success", "an enqueue without an answer is taken for done",
		[]Edit{{"engine/client.go", "	done, err := c.enqueueOne(ctx, r)\n", `	done, err := c.enqueueOne(ctx, r)
	var answered interface{ SQLState() string }
	if err != nil && !errors.As(err, &answered) {
		err = nil
	}
`}},
		[]Suite{promised}},
	{"death-in-two", "the dead letter is written after the run was closed, in a transaction of its own",
		[]Edit{{finishSQL, "FROM moved AS m WHERE m.next IN ('exhausted', 'permanent', 'poison', 'expired'))", "FROM moved AS m WHERE m.next = 'never')"},
			{"engine/finish.go", "	if err := f.e.hot.SendBatch(ctx, b).Close(); err != nil {\n", `	err := f.e.hot.SendBatch(ctx, b).Close()
	for i := range batch {
		if reason, dead := batch[i].verdict.dead(); dead && err == nil {
			row, v := batch[i].run.row, batch[i].verdict
			_, err = f.e.hot.Exec(ctx, "INSERT INTO dead_letter_jobs (job_id, fencing_token, queue, type, attempt, crashes, reason, fingerprint) SELECT e.job_id, e.fencing_token, $3, $4, $5, $6, $7, $8 FROM job_executions AS e WHERE e.job_id = $1 AND e.fencing_token = $2 ON CONFLICT DO NOTHING",
				row.ID, row.FencingToken, row.Queue, row.Type, v.carried, v.crashes, string(reason), v.fingerprint)
		}
	}
	if err != nil {
`}},
		[]Suite{life("crash_on_the_last_attempt|discard_and_restore|replay_begins_anew"), living}},
	{"replay-resets-the-token", "a replayed job's next claim gets the token of the run that killed it",
		[]Edit{{deadSQL, "x.discarded_at IS NULL RETURNING x.job_id)", "x.discarded_at IS NULL RETURNING x.job_id, setval('job_claims_id_seq', x.fencing_token, false))"}},
		[]Suite{life("replay_begins_anew")}},
	{"key-by-select-then-insert", "an enqueue looks for its key and inserts if it sees none",
		[]Edit{{"db/migrations/20261130150100_unique_doors.sql", keyByConflict, keyBySelect}},
		[]Suite{keys}},
	{"reaper-leaves-the-run-open", "a lost run goes back to line without its execution",
		[]Edit{{"engine/reaper.go", "		return e.countReaped(ctx, tx, rows)\n", `		for _, r := range rows {
				if _, err := tx.Exec(ctx, "DELETE FROM job_executions WHERE job_id = $1 AND fencing_token = $2", r.JobID, r.Token); err != nil {
					return err
				}
			}
			return e.countReaped(ctx, tx, rows)
`}},
		[]Suite{life("ten_lost_runs_bury|reaped_twice_is_reaped_once")}},
	{"claim-without-locks", "two claims at once take the same jobs",
		[]Edit{{claimSQL, "d AS (\n  DELETE FROM job_ready AS r WHERE r.ctid = ANY(ARRAY(\n    SELECT unnest(ARRAY(\n      SELECT y.ctid FROM job_ready AS y\n      WHERE y.queue = lane.queue AND y.priority = lane.priority",
			"d AS (\n  SELECT r.seq, r.job_id, r.attempt, r.crashes, r.queue, r.priority, r.type, r.ready_at FROM job_ready AS r WHERE r.ctid = ANY(ARRAY(\n    SELECT unnest(ARRAY(\n      SELECT y.ctid FROM job_ready AS y\n      WHERE y.queue = lane.queue AND y.priority = lane.priority"},
			{claimSQL, "ORDER BY y.seq LIMIT lane.want FOR UPDATE SKIP LOCKED))", "ORDER BY y.seq LIMIT lane.want))"},
			{claimSQL, "    LIMIT $6::int))\n  RETURNING r.seq, r.job_id, r.attempt, r.crashes, r.queue, r.priority, r.type, r.ready_at),",
				"    LIMIT $6::int))),\ntaken AS (DELETE FROM job_ready AS g WHERE g.job_id = ANY(ARRAY(SELECT d.job_id FROM d))),"}},
		[]Suite{orders, living}},
	{"cancel-without-looking", "a cancel writes the end of a job wherever it stands",
		[]Edit{{deadSQL, "gone AS (SELECT job_id, attempt FROM r UNION ALL SELECT job_id, attempt FROM s UNION ALL SELECT job_id, attempt FROM h)\nINSERT INTO job_executions",
			"gone AS (SELECT u.job_id, 0::smallint AS attempt FROM unnest($1::uuid[]) AS u(job_id))\nINSERT INTO job_executions"}},
		[]Suite{life("cancel_what_waits|cancel_takes_a_token"), states}},
	{"heartbeat-without-token", "a worker does not hear that a lease is gone",
		[]Edit{{"engine/lease.go", "lost := e.leases.lose(asked, kept)", "lost := e.leases.lose(asked, asked)"}},
		[]Suite{leases}},
	{"commit-not-on-disk", "claims and ends do not wait for the disk",
		[]Edit{{"engine/run.go", `"plan_cache_mode": "force_generic_plan", "jit": "off",`, `"plan_cache_mode": "force_generic_plan", "jit": "off", "synchronous_commit": "off",`}},
		[]Suite{promised}},
}
