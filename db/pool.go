package db

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultMaxConns         = 20
	defaultStatementTimeout = 5 * time.Second
	defaultConnectTimeout   = 5 * time.Second
	idleInTransaction       = 60 * time.Second
)

// PoolConfig says how [Open] connects. The zero value of every field but URL is
// its default.
type PoolConfig struct {
	// URL is a postgres:// address or a key=value connection string, with one or
	// several hosts. Settings in it that this struct doesn't have are kept. With
	// default_query_exec_mode=cache_describe it may go through a transaction pooler:
	// no statement is prepared, and no timeout is set for the session.
	URL string
	// MaxConns is the most connections open at once. More load Postgres with
	// processes; fewer make callers wait for each other. Default 20.
	MaxConns int32
	// StatementTimeout is how long one statement may run before Postgres cancels
	// it; a statement_timeout in URL wins. Whole milliseconds. Default 5s.
	StatementTimeout time.Duration
	// ApplicationName is what pg_stat_activity shows. Default "reliable-job-engine".
	ApplicationName string
	// ConnectTimeout bounds a new connection, sign-in included. Default 5s.
	ConnectTimeout time.Duration
}

// ErrNoURL says that no database was named. The driver would go to a socket of
// this machine's Postgres then, which is hardly ever meant.
var ErrNoURL = errors.New("no database address: set DATABASE_URL or DB_HOST")

// Open connects a pool and asks the database once, so that a wrong address is
// told at the start. A network that swallows packets is noticed within 30s, an
// idle transaction ends after 60s. The caller closes the pool. Errors:
// [ErrNoURL]; [*ConnectError], whose text never has the password.
func Open(ctx context.Context, config PoolConfig) (*pgxpool.Pool, error) {
	pc, err := poolConfig(config)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, connectError(&pc.ConnConfig.Config, err)
	}
	ctx, cancel := context.WithTimeout(ctx, pc.ConnConfig.ConnectTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, connectError(&pc.ConnConfig.Config, err)
	}
	return pool, nil
}

func poolConfig(config PoolConfig) (*pgxpool.Config, error) {
	if config.URL == "" {
		return nil, ErrNoURL
	}
	pc, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		return nil, badURL(config.URL, err)
	}
	pc.MaxConns = config.MaxConns
	if pc.MaxConns <= 0 {
		pc.MaxConns = defaultMaxConns
	}
	cc := pc.ConnConfig
	cc.ConnectTimeout = orDefault(config.ConnectTimeout, defaultConnectTimeout)
	cc.DialFunc = dialer(cc.ConnectTimeout).DialContext
	params := cc.RuntimeParams
	if config.ApplicationName != "" {
		params["application_name"] = config.ApplicationName
	}
	setDefault(params, "application_name", "reliable-job-engine")
	if cc.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return pc, nil // for a transaction pooler, which refuses the settings of a session
	}
	setDefault(params, "statement_timeout", millis(orDefault(config.StatementTimeout, defaultStatementTimeout)))
	setDefault(params, "idle_in_transaction_session_timeout", millis(idleInTransaction))
	return pc, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

func setDefault(params map[string]string, name, value string) {
	if params[name] == "" {
		params[name] = value
	}
}

func millis(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10)
}

// dialer makes connections whose loss is noticed. A silent peer is asked after 10s
// of silence and every 5s from then on; unanswered for 20s (Linux counts unsent
// data the same way, see userTimeout), the connection is dead.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
		},
		Control: userTimeout,
	}
}

// ConnectError says which database could not be reached, as whom, and what to do.
type ConnectError struct {
	Address  string // host:port, several separated by commas
	User     string
	Database string
	Err      error
}

// Error never has the password.
func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect to database %q at %s as user %q: %v: %s",
		e.Database, e.Address, e.User, rootCause(e.Err), advice(e.Err))
}

// Unwrap returns the driver's error.
func (e *ConnectError) Unwrap() error { return e.Err }

func connectError(config *pgconn.Config, err error) error {
	addresses := []string{address(config.Host, config.Port)}
	for _, f := range config.Fallbacks { // sslmode=prefer lists a host twice
		if a := address(f.Host, f.Port); a != addresses[len(addresses)-1] {
			addresses = append(addresses, a)
		}
	}
	return &ConnectError{
		Address: strings.Join(addresses, ","), User: config.User, Database: config.Database, Err: err,
	}
}

func address(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// rootCause drops pgx's own "failed to connect to ..." wrapping, which repeats
// address and user.
func rootCause(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return errors.New(pg.Message)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && connect.Unwrap() != nil {
		return connect.Unwrap()
	}
	return err
}

func advice(err error) string {
	var pg *pgconn.PgError
	var dns *net.DNSError
	switch {
	case errors.As(err, &pg):
		return serverAdvice(pg)
	case errors.As(err, &dns):
		return "check the host name"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "nothing answered in time; check the address and the firewall between"
	case strings.Contains(err.Error(), "TLS"), strings.Contains(err.Error(), "tls"), strings.Contains(err.Error(), "x509"):
		return "check sslmode and the server's certificate"
	default:
		return "check that Postgres runs there and that the address is right"
	}
}

func serverAdvice(pg *pgconn.PgError) string {
	switch {
	case strings.Contains(pg.Message, "unsupported startup parameter"):
		return "the pooler in between refuses it; for one in transaction mode add default_query_exec_mode=cache_describe to the address, " +
			"else add it to the pooler's ignore_startup_parameters or connect directly"
	case pg.Code == "28P01", pg.Code == "28000":
		return "check user and password"
	case pg.Code == "3D000":
		return "create it with `jobctl migrate up` or name another"
	case pg.Code == "53300":
		return "close other clients, lower DB_MAX_CONNS or raise max_connections"
	case strings.HasPrefix(pg.Code, "57P"):
		return "Postgres is starting or stopping; try again"
	default:
		return "see the server's log"
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
