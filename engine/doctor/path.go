package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// What is due and what has expired is decided by the database's clock; this
	// machine's writes log lines and, for a producer, run_at.
	clockSlack   = time.Second
	clockTooFar  = 30 * time.Second
	clockSamples = 5
	// hearing is how long a notification may take.
	hearing = 2 * time.Second
)

func (v *visit) clock(ctx context.Context) (Check, error) {
	conn, err := v.Pool.Acquire(ctx)
	if err != nil {
		return Check{}, err
	}
	defer conn.Release()
	var offset, unsure time.Duration
	for i := range clockSamples {
		asked := v.now()
		theirs, err := v.q.DoctorClock(ctx, conn)
		if err != nil {
			return Check{}, err
		}
		answered := v.now()
		if trip := answered.Sub(asked); i == 0 || trip/2 < unsure {
			offset, unsure = theirs.Sub(asked.Add(trip/2)), trip/2
		}
	}
	return judgeClock(offset, unsure)
}

// judgeClock is given how far the database's clock is ahead, and by how much that
// may be wrong.
func judgeClock(offset, unsure time.Duration) (Check, error) {
	away, word := offset, "ahead of"
	if away < 0 {
		away, word = -away, "behind"
	}
	least := away - unsure
	evidence := fmt.Sprintf("the database's clock is %s %s this machine's, give or take %s", away.Round(time.Millisecond), word, max(unsure, time.Millisecond).Round(time.Millisecond))
	remedy := "Let NTP set both clocks (timedatectl; chronyc tracking). Leases and due times follow the database's clock; logs and a producer's run_at follow this one."
	switch {
	case least >= clockTooFar:
		return problem(remedy, "%s", evidence)
	case least >= clockSlack:
		return warning(remedy, "%s", evidence)
	}
	return ok("%s", evidence)
}

// pooler tells whether something stands between, by the process that answers: a
// pooler gives its clients a number of its own. Where there is one and statements
// are prepared, they must still be there after another client had the connection.
func (v *visit) pooler(ctx context.Context) (Check, error) {
	conn, err := v.connect(ctx)
	if err != nil {
		return Check{}, err
	}
	defer closeConn(conn)
	pid, err := v.q.DoctorBackend(ctx, conn)
	if err != nil {
		return v.noStatements(err)
	}
	switch {
	case conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement:
		return ok("the address is in the mode for a transaction pooler: no statement is prepared")
	case uint32(pid) == conn.PgConn().PID():
		return ok("nothing stands between: the server answers itself")
	}
	if err := v.prepareAcross(ctx, conn); err != nil {
		return v.noStatements(err)
	}
	return ok("there is a pooler, and prepared statements survive it")
}

// noStatements reads an error of a prepared statement: 26000 is one that is not
// there, 42P05 one that another client had made.
func (v *visit) noStatements(err error) (Check, error) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "26000" || pg.Code == "42P05") {
		return problem("Add default_query_exec_mode=cache_describe to the address, or connect past the pooler.",
			"a pooler stands between that lends its connections by the transaction, and prepared statements get lost in it: %s", pg.Message)
	}
	return Check{}, err
}

// prepareAcross prepares a statement, lets another client take the connection that
// has it, and uses it.
func (v *visit) prepareAcross(ctx context.Context, conn *pgx.Conn) error {
	const name = "jobctl_doctor"
	if _, err := conn.Prepare(ctx, name, "SELECT 1"); err != nil {
		return err
	}
	other, err := v.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(other)
	// The simple protocol prepares nothing: this client must not fail for its own.
	if _, err := other.Exec(ctx, "BEGIN READ ONLY", pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, name)
	_, rollback := other.Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, rollback)
}

// notifications sends one to itself by another connection, as a worker does.
func (v *visit) notifications(ctx context.Context) (Check, error) {
	conn, err := v.connect(ctx)
	if err != nil {
		return Check{}, err
	}
	defer closeConn(conn)
	channel := "jobs_doctor_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := conn.Exec(ctx, "LISTEN "+channel, pgx.QueryExecModeSimpleProtocol); err != nil {
		return Check{}, err
	}
	sender, err := v.connect(ctx)
	if err != nil {
		return Check{}, err
	}
	defer closeConn(sender)
	began := time.Now()
	if _, err := sender.Exec(ctx, "NOTIFY "+channel, pgx.QueryExecModeSimpleProtocol); err != nil {
		return Check{}, err
	}
	wait, cancel := context.WithTimeout(ctx, hearing)
	defer cancel()
	if _, err := conn.WaitForNotification(wait); err != nil {
		if wait.Err() == nil {
			return Check{}, err
		}
		return warning(fmt.Sprintf("Give workers an address past the pooler, or one whose pooler lends connections by the session. Until then POLL_INTERVAL (%s) decides.", v.PollInterval),
			"LISTEN succeeds and nothing arrives within %s: a transaction pooler stands between. Jobs start up to %s later", hearing, v.PollInterval)
	}
	return ok("one arrived after %s", time.Since(began).Round(100*time.Microsecond))
}

// connect opens a connection of its own with the pool's address.
func (v *visit) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, v.Pool.Config().ConnConfig)
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the process ends soon
}
