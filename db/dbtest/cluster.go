package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/db"
)

// cluster is the Postgres that a test process clones its databases on.
type cluster struct {
	url      string // of the maintenance database
	prefix   string // of this process's database names
	template string

	mu    sync.Mutex // CREATE DATABASE takes turns: two copies of a template would wait anyway
	admin *pgx.Conn
	last  int
}

// shared starts the cluster on first use. It is never stopped: it ends with the
// process, see startThrowaway.
var shared = sync.OnceValues(newCluster)

func newCluster() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	address := os.Getenv("RJE_TEST_DATABASE_URL")
	if address == "" {
		server, err := startThrowaway(ctx)
		if err != nil {
			return nil, err
		}
		address = server.URL()
	}
	admin, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", db.RedactURL(address), err)
	}
	c := &cluster{
		url: address, admin: admin,
		prefix: fmt.Sprintf("%s%d_%d_", namePrefix, time.Now().Unix(), os.Getpid()),
	}
	c.template = c.prefix + "template"
	if err := c.sweep(ctx); err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, withDatabase(address, c.template), nil); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *cluster) nextName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.prefix + strconv.Itoa(c.last)
}

func (c *cluster) clone() (string, error) {
	name := c.nextName()
	// To copy files is quicker than to log their pages; without fsync its checkpoints cost little.
	return name, c.exec("CREATE DATABASE " + identifier(name) + " TEMPLATE " + identifier(c.template) + " STRATEGY file_copy")
}

func (c *cluster) drop(name string) error {
	return c.exec("DROP DATABASE IF EXISTS " + identifier(name) + " WITH (FORCE)")
}

// exec makes a call that takes its turn first. One that was too late has lost the
// connection, which is no reason for the next to fail.
func (c *cluster) exec(sql string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if c.admin.IsClosed() {
		again, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return err
		}
		c.admin = again
	}
	_, err := c.admin.Exec(ctx, sql)
	return err
}

const (
	namePrefix = "rje_test_"
	staleAfter = 6 * time.Hour // no test process runs that long
)

// sweep drops databases that killed test processes left on a cluster that outlives
// them; their names carry the time of the process.
func (c *cluster) sweep(ctx context.Context) error {
	rows, err := c.admin.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", namePrefix)
	if err != nil {
		return fmt.Errorf("list test databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list test databases: %w", err)
	}
	for _, name := range names {
		begun, _, _ := strings.Cut(strings.TrimPrefix(name, namePrefix), "_")
		seconds, err := strconv.ParseInt(begun, 10, 64)
		if err != nil || time.Since(time.Unix(seconds, 0)) < staleAfter {
			continue
		}
		if err := c.drop(name); err != nil {
			return fmt.Errorf("drop stale test database %s: %w", name, err)
		}
	}
	return nil
}

// withDatabase is address with another database name.
func withDatabase(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		// A key=value connection string: the last dbname wins.
		return address + " dbname=" + name
	}
	u.Path = "/" + name
	return u.String()
}
