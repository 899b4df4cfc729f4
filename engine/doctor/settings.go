package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// leastVersion is the oldest major version that the engine runs on.
const leastVersion = 15

// lastFixes is when the Postgres project stops mending a major version.
var lastFixes = map[int]time.Time{
	15: time.Date(2027, 11, 11, 0, 0, 0, 0, time.UTC),
	16: time.Date(2028, 11, 9, 0, 0, 0, 0, time.UTC),
	17: time.Date(2029, 11, 8, 0, 0, 0, 0, time.UTC),
	18: time.Date(2030, 11, 14, 0, 0, 0, 0, time.UTC),
}

func (v *visit) migrations(ctx context.Context) (Check, error) {
	wrong, err := v.Schema(ctx)
	switch {
	case err != nil:
		return Check{}, err
	case wrong != "":
		return problem("See: jobctl migrate status", "%s", wrong)
	}
	return ok("the schema is this program's")
}

func (v *visit) version(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	return judgeVersion(int(s.VersionNum)/10000, s.Version, v.now())
}

func judgeVersion(major int, text string, now time.Time) (Check, error) {
	end, known := lastFixes[major]
	switch {
	case major < leastVersion:
		return problem(fmt.Sprintf("Move the database to PostgreSQL %d or newer.", leastVersion), "PostgreSQL %s; the engine needs %d", text, leastVersion)
	case known && now.After(end):
		return warning("Move the database to a newer major version.", "PostgreSQL %s has had no fixes since %s", text, end.Format("January 2006"))
	}
	return ok("PostgreSQL %s", text)
}

func (v *visit) standby(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	switch {
	case err != nil:
		return Check{}, err
	case s.InRecovery:
		return problem("Name the primary in DATABASE_URL or DB_HOST; with several hosts add target_session_attrs=read-write.", "the server is a standby: it takes no writes")
	case s.ReadOnly:
		return problem(fmt.Sprintf("Find who set it: \\drds in psql. For example: ALTER ROLE %s RESET default_transaction_read_only", quoted(s.Role)),
			"transactions of %s are read-only", s.Role)
	}
	return ok("it takes writes")
}

func (v *visit) fsync(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	if !s.Fsync {
		return problem("ALTER SYSTEM RESET fsync; SELECT pg_reload_conf(); and look for it in postgresql.conf and the start command.",
			"fsync is off: a power cut can lose or mangle everything")
	}
	return ok("fsync is on")
}

func (v *visit) fullPageWrites(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	if !s.FullPageWrites {
		return problem("ALTER SYSTEM RESET full_page_writes; SELECT pg_reload_conf(); unless the file system never writes half a page.",
			"full_page_writes is off: a power cut can leave pages that are half new")
	}
	return ok("full_page_writes is on")
}

// synchronousCommit looks at what holds for this role, and at what is set for other
// roles, as which a worker may sign in.
func (v *visit) synchronousCommit(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	set, err := v.q.DoctorSettingsOf(ctx, v.Pool, "synchronous_commit")
	if err != nil {
		return Check{}, err
	}
	var resets, others []string
	for _, x := range set {
		if x.Value != "off" {
			continue
		}
		reset, mine := "", x.Role == "" || x.Role == s.Role
		switch {
		case x.Role == "":
			reset = "ALTER DATABASE " + quoted(s.Database) + " RESET synchronous_commit"
		case x.Database == "":
			reset = "ALTER ROLE " + quoted(x.Role) + " RESET synchronous_commit"
		default:
			reset = "ALTER ROLE " + quoted(x.Role) + " IN DATABASE " + quoted(x.Database) + " RESET synchronous_commit"
		}
		if mine {
			resets = append(resets, reset)
		} else {
			others = append(others, x.Role)
			resets = append(resets, reset)
		}
	}
	const harm = "a crash of the server can lose jobs and ends that were acknowledged"
	switch {
	case s.SynchronousCommit == "off" && s.SynchronousCommitSource != "database" && s.SynchronousCommitSource != "user" && s.SynchronousCommitSource != "database user":
		return problem("ALTER SYSTEM RESET synchronous_commit; SELECT pg_reload_conf(); or take it out of the address.",
			"synchronous_commit is off, by %s: %s", s.SynchronousCommitSource, harm)
	case s.SynchronousCommit == "off":
		return problem(strings.Join(resets, "; "), "synchronous_commit is off for role %s in database %s: %s", s.Role, s.Database, harm)
	case len(others) > 0:
		return warning(strings.Join(resets, "; "), "synchronous_commit is off for %s: if a server or worker signs in so, %s", strings.Join(others, ", "), harm)
	}
	return ok("synchronous_commit is %s", s.SynchronousCommit)
}

func (v *visit) autovacuum(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	off, err := v.q.DoctorTablesWithoutVacuum(ctx, v.Pool, tables)
	if err != nil {
		return Check{}, err
	}
	const harm = "dead rows pile up and claims become slow"
	switch {
	case !s.Autovacuum:
		return problem("ALTER SYSTEM RESET autovacuum; SELECT pg_reload_conf();", "autovacuum is off: %s", harm)
	case !s.TrackCounts:
		return problem("ALTER SYSTEM RESET track_counts; SELECT pg_reload_conf();", "track_counts is off, without which autovacuum does nothing: %s", harm)
	case len(off) > 0:
		resets := make([]string, len(off))
		for i, name := range off {
			resets[i] = "ALTER TABLE " + quoted(name) + " RESET (autovacuum_enabled)"
		}
		return problem(strings.Join(resets, "; "), "autovacuum is off for %s: %s", strings.Join(off, ", "), harm)
	}
	return ok("autovacuum is on")
}
