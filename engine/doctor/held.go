package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// A transaction that is open for so long keeps every dead row since then. Measured:
	// ten minutes of it cost less than half of the throughput; an hour does not.
	// A prepared one is settled within seconds by whoever prepared it.
	longHeld    = 5 * time.Minute
	tooLongHeld = time.Hour
	// muchLog is what a forgotten slot may keep of the log before the disk is at stake.
	muchLog = 1 << 30
	told    = 3 // rows in a sentence
)

func (v *visit) transactions(ctx context.Context) (Check, error) {
	rows, err := v.q.DoctorTransactions(ctx, v.Pool, v.long.Seconds(), told)
	if err != nil {
		return Check{}, err
	}
	if len(rows) == 0 {
		hidden, err := v.q.DoctorHidden(ctx, v.Pool)
		if err != nil {
			return Check{}, err
		}
		if hidden > 0 {
			s, err := v.q.DoctorServer(ctx, v.Pool)
			if err != nil {
				return Check{}, err
			}
			return Check{Verdict: Unchecked, Evidence: fmt.Sprintf("what %d sessions of other roles do is not shown to role %s", hidden, s.Role),
				Remedy: "GRANT pg_read_all_stats TO " + quoted(s.Role) + ", or ask as a role that has it."}, nil
		}
		return ok("none is open for %s", v.long)
	}
	var open, ends []string
	for _, r := range rows {
		open = append(open, fmt.Sprintf("%s by %s (%s, process %d, %s)", seconds(r.AgeSeconds), r.Role, orWord(r.Application, "no name"), r.Pid, r.State))
		ends = append(ends, fmt.Sprintf("SELECT pg_terminate_backend(%d)", r.Pid))
	}
	remedy := "Commit it, or end its session: " + strings.Join(ends, "; ")
	evidence := "open for " + strings.Join(open, "; ") + ": dead rows stay as long"
	if rows[0].AgeSeconds >= v.tooLong.Seconds() {
		return problem(remedy, "%s", evidence)
	}
	return warning(remedy, "%s", evidence)
}

func orWord(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (v *visit) preparedTransactions(ctx context.Context) (Check, error) {
	rows, err := v.q.DoctorPrepared(ctx, v.Pool, told)
	if err != nil {
		return Check{}, err
	}
	var old, ends []string
	for _, p := range rows {
		if p.AgeSeconds >= v.long.Seconds() {
			old = append(old, fmt.Sprintf("%q by %s since %s", p.Gid, p.Owner, seconds(p.AgeSeconds)))
			ends = append(ends, "ROLLBACK PREPARED '"+strings.ReplaceAll(p.Gid, "'", "''")+"'")
		}
	}
	if len(old) == 0 {
		return ok("none is left behind")
	}
	return problem("Ask its owner, then COMMIT PREPARED or: "+strings.Join(ends, "; "), "left behind: %s: its locks and all dead rows since then stay, over restarts too", strings.Join(old, "; "))
}

func (v *visit) replicationSlots(ctx context.Context) (Check, error) {
	rows, err := v.q.DoctorSlots(ctx, v.Pool, told)
	if err != nil {
		return Check{}, err
	}
	list := make([]slot, len(rows))
	for i, r := range rows {
		list[i] = slot{r.Name, r.HoldsRows, r.KeptBytes}
	}
	return judgeSlots(list)
}

// slot is one that nobody reads.
type slot struct {
	name      string
	holdsRows bool
	kept      int64 // bytes of the log
}

func judgeSlots(list []slot) (Check, error) {
	if len(list) == 0 {
		return ok("none is without a reader")
	}
	var idle, ends []string
	bad := false
	for _, s := range list {
		what := fmt.Sprintf("%s keeps %d MiB of the log", s.name, s.kept>>20)
		if s.holdsRows {
			what += " and all dead rows"
		}
		idle = append(idle, what)
		ends = append(ends, "SELECT pg_drop_replication_slot('"+strings.ReplaceAll(s.name, "'", "''")+"')")
		bad = bad || s.holdsRows || s.kept >= muchLog
	}
	remedy := "Start its reader, or drop it: " + strings.Join(ends, "; ")
	evidence := "without a reader: " + strings.Join(idle, "; ")
	if bad {
		return problem(remedy, "%s", evidence)
	}
	return warning(remedy, "%s", evidence)
}

// limit is one bound on connections.
type limit struct {
	what      string
	max, used int
	remedy    string
}

func (v *visit) connections(ctx context.Context) (Check, error) {
	x, err := v.q.DoctorConnections(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	limits := []limit{{"the server", int(x.MaxConnections - x.Reserved), int(x.Used), "Raise max_connections (a restart), lower DB_MAX_CONNS, or put a pooler between."}}
	if x.DatabaseLimit >= 0 && !x.Superuser {
		limits = append(limits, limit{"database " + s.Database, int(x.DatabaseLimit), int(x.DatabaseUsed), "ALTER DATABASE " + quoted(s.Database) + " CONNECTION LIMIT -1"})
	}
	if x.RoleLimit >= 0 && !x.Superuser {
		limits = append(limits, limit{"role " + s.Role, int(x.RoleLimit), int(x.RoleUsed), "ALTER ROLE " + quoted(s.Role) + " CONNECTION LIMIT -1"})
	}
	return judgeConnections(limits, v.Connections)
}

// judgeConnections finds the tightest bound. each is what one process may open.
func judgeConnections(limits []limit, each int) (Check, error) {
	tight := limits[0]
	for _, l := range limits[1:] {
		if l.max-l.used < tight.max-tight.used {
			tight = l
		}
	}
	evidence := fmt.Sprintf("%d of %d that %s allows are taken; one process of the product opens up to %d", tight.used, tight.max, tight.what, each)
	switch {
	case each > tight.max:
		return problem(tight.remedy, "%s", evidence)
	case tight.max-tight.used < each:
		return warning(tight.remedy, "%s", evidence)
	}
	return ok("%s", evidence)
}
