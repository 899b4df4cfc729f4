package db

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	"github.com/amacneil/dbmate/v2/pkg/driver/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// sessionScheme names the dbmate driver below. dbmate's own connects with lib/pq,
// which knows neither several hosts nor target_session_attrs and cannot be
// cancelled; this one keeps its SQL and connects with pgx, as the program does.
const sessionScheme = "pgx"

func init() { dbmate.RegisterDriver(newDriver, sessionScheme) }

// sessions holds what a dbmate URL can't carry: dbmate makes its driver from a
// URL alone, so the URL is the key of a session.
var (
	sessions    sync.Map // string -> *session
	lastSession atomic.Int64
)

// session is one run of dbmate: how it connects, and what it has connected.
type session struct {
	config *pgx.ConnConfig
	mu     sync.Mutex
	conns  []*pgconn.PgConn
	over   bool
}

// cancelTimeout bounds telling Postgres that nobody waits any more.
const cancelTimeout = 2 * time.Second

// openSession registers a session whose connections break when ctx ends, since
// dbmate takes no context. Postgres then rolls back what was under way.
func openSession(ctx context.Context, config *pgx.ConnConfig) (key string, done func()) {
	s := &session{config: config.Copy()}
	s.config.AfterConnect = s.add
	key = strconv.FormatInt(lastSession.Add(1), 10)
	sessions.Store(key, s)
	stop := context.AfterFunc(ctx, s.breakOff)
	return key, func() {
		stop()
		sessions.Delete(key)
	}
}

func (s *session) add(_ context.Context, conn *pgconn.PgConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conn)
	if s.over {
		return context.Canceled
	}
	return nil
}

// breakOff cancels what runs before it lets the connection fail: Postgres sees a closed
// socket only when the statement is done, and the next starter would wait for it.
func (s *session) breakOff() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, conn := range s.conns {
		// Neither error could be acted on: the migration has failed already.
		_ = conn.CancelRequest(ctx)
		_ = conn.Conn().SetDeadline(time.Unix(1, 0))
	}
}

// driver is dbmate's Postgres driver on a pgx connection.
type driver struct {
	dbmate.Driver
	key string
}

var _ dbmate.Driver = (*driver)(nil)

func newDriver(config dbmate.DriverConfig) dbmate.Driver {
	return &driver{Driver: postgres.NewDriver(config), key: strings.TrimPrefix(config.DatabaseURL.Path, "/")}
}

// Open connects with the session's configuration.
func (d *driver) Open() (*sql.DB, error) {
	s, ok := sessions.Load(d.key)
	if !ok {
		return nil, dbmate.ErrInvalidURL
	}
	return stdlib.OpenDB(*s.(*session).config), nil
}
