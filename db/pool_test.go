package db_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

func TestSessionsHaveTheirLimits(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	for _, c := range []struct {
		config db.PoolConfig
		show   string
		want   string
	}{
		{db.PoolConfig{URL: url}, "statement_timeout", "5s"},
		{db.PoolConfig{URL: url, StatementTimeout: 1500 * time.Millisecond}, "statement_timeout", "1500ms"},
		{db.PoolConfig{URL: url + "&statement_timeout=7s", StatementTimeout: time.Second}, "statement_timeout", "7s"},
		{db.PoolConfig{URL: url}, "idle_in_transaction_session_timeout", "1min"},
		{db.PoolConfig{URL: url}, "lock_timeout", "0"},
		{db.PoolConfig{URL: url}, "application_name", "reliable-job-engine"},
		{db.PoolConfig{URL: url, ApplicationName: "worker"}, "application_name", "worker"},
	} {
		pool, err := db.Open(timeout(t, 10*time.Second), c.config)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		err = pool.QueryRow(timeout(t, 10*time.Second), "SHOW "+c.show).Scan(&got)
		pool.Close()
		if err != nil || got != c.want {
			t.Errorf("%s = %q, %v, want %q", c.show, got, err, c.want)
		}
	}
}

func TestTheNumberOfConnectionsIsBounded(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	for conns, want := range map[int32]int32{0: 20, 3: 3} {
		pool, err := db.Open(timeout(t, 10*time.Second), db.PoolConfig{URL: url, MaxConns: conns})
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.Config().MaxConns; got != want {
			t.Errorf("MaxConns %d gives %d, want %d", conns, got, want)
		}
		pool.Close()
	}
}

func TestALongStatementIsCancelled(t *testing.T) {
	t.Parallel()
	pool, err := db.Open(timeout(t, 10*time.Second), db.PoolConfig{URL: dbtest.NewURL(t), StatementTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err = pool.Exec(timeout(t, 10*time.Second), "SELECT pg_sleep(20)")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "57014" {
		t.Errorf("err = %v, want query_canceled", err)
	}
}

func TestConnectErrorsSayWhatToDoAndHideThePassword(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(dbtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(config.Host, portText(config))
	silent := silentListener(t)
	for name, c := range map[string]struct {
		url   string
		words []string
	}{
		"nobody listens": {"postgres://u:geheim@127.0.0.1:1/d?sslmode=disable", []string{"127.0.0.1:1", `user "u"`, `database "d"`, "refused", "check that Postgres runs"}},
		"no answer":      {"postgres://u:geheim@" + silent + "/d?sslmode=disable", []string{silent, "nothing answered in time"}},
		"wrong password": {"postgres://postgres:geheim@" + address + "/postgres?sslmode=disable", []string{address, "check user and password"}},
		"no database":    {"postgres://" + config.User + ":" + config.Password + "@" + address + "/absent?sslmode=disable", []string{`"absent"`, "create it with"}},
		"no TLS there":   {"postgres://u:geheim@" + address + "/d?sslmode=require", []string{"check sslmode"}},
		"no host":        {"postgres://u:geheim@no-such-host.invalid/d", []string{"no-such-host.invalid", "check the host name"}},
		"several hosts":  {"postgres://u:geheim@127.0.0.1:1,127.0.0.1:2/d?sslmode=disable", []string{"127.0.0.1:1,127.0.0.1:2"}},
		"odd password":   {"postgres://u:gehei/m@127.0.0.1:1/d", []string{"percent-encoded"}},
		"bad sslmode":    {"postgres://u:geheim@127.0.0.1:1/d?sslmode=perhaps", []string{"sslmode"}},
		"no address":     {"", []string{"DATABASE_URL", "DB_HOST"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, err := db.Open(timeout(t, 20*time.Second), db.PoolConfig{URL: c.url, ConnectTimeout: 2 * time.Second})
			if err == nil {
				pool.Close()
				t.Fatal("Open worked")
			}
			t.Log(err)
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q lacks %q", err, word)
				}
			}
			if strings.Contains(err.Error(), "gehei") || strings.Contains(err.Error(), config.Password) {
				t.Errorf("%q shows the password", err)
			}
		})
	}
}

// TestAPoolerThatRefusesASettingIsExplained answers like PgBouncer without
// ignore_startup_parameters.
func TestAPoolerThatRefusesASettingIsExplained(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			if n, _ := conn.Read(make([]byte, 4096)); n > 0 {
				body := "SFATAL\x00C08P01\x00Munsupported startup parameter: statement_timeout\x00\x00"
				conn.Write(append([]byte{'E', 0, 0, 0, byte(len(body) + 4)}, body...))
			}
			conn.Close()
		}
	}()
	_, err := db.Open(timeout(t, 10*time.Second), db.PoolConfig{URL: "postgres://u:p@" + listener.Addr().String() + "/d?sslmode=disable"})
	if err == nil || !strings.Contains(err.Error(), "ignore_startup_parameters") {
		t.Errorf("err = %v, want ignore_startup_parameters named", err)
	}
}

func TestRedactURLHidesEveryPassword(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:geheim@h:5432/d":                 "postgres://u:xxxxx@h:5432/d",
		"postgres://u:geheim@h/d?sslmode=disable":      "postgres://u:xxxxx@h/d?sslmode=disable",
		"postgres://u@h/d":                             "postgres://u@h/d",
		"postgres://h:5432/d":                          "postgres://h:5432/d",
		"postgres://h/d?user=u&password=geheim&a=b":    "postgres://h/d?user=u&password=xxxxx&a=b",
		"postgres://h/d?sslpassword=geheim":            "postgres://h/d?sslpassword=xxxxx",
		"postgres://u:ge@heim@h/d":                     "postgres://u:xxxxx@h/d",
		"postgres://u:ge/heim@h/d":                     "postgres://u:xxxxx@h/d",
		"postgres://u:ge?heim@h/d":                     "postgres://u:xxxxx@h/d",
		"postgres://u:ge#heim@h/d":                     "postgres://u:xxxxx@h/d",
		"postgres://u:ge%heim@h/d":                     "postgres://u:xxxxx@h/d",
		"postgres://u:geheim@h1:1,h2:2/d":              "postgres://u:xxxxx@h1:1,h2:2/d",
		"postgres://u:geheim@h/d?application_name=a@b": "postgres://u:xxxxx@h/d?application_name=a@b",
		"host=h user=u password=geheim dbname=d":       "host=h user=u password=xxxxx dbname=d",
		`password='ge \'heim' host=h`:                  "password=xxxxx host=h",
		"password = geheim host=h":                     "password = xxxxx host=h",
		"":                                             "",
	} {
		if got := db.RedactURL(in); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPgDumpIsGivenNoPasswordAndNoSettingItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:geheim@h:1/d?sslmode=disable&pool_max_conns=3": "postgres://u@h:1/d?sslmode=disable",
		"postgres://h/d?statement_timeout=5s&connect_timeout=3":      "postgres://h/d?connect_timeout=3",
		"host=h password=geheim dbname=d":                            "host=h dbname=d",
	} {
		if got := db.LibpqAddress(in); got != want {
			t.Errorf("libpq address of %q = %q, want %q", in, got, want)
		}
	}
}

func portText(config *pgx.ConnConfig) string {
	_, port, _ := strings.Cut(pgconnAddress(config), ":")
	return port
}

func pgconnAddress(config *pgx.ConnConfig) string {
	_, address := pgconn.NetworkAddress(config.Host, config.Port)
	return address
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// silentListener takes connections and says nothing.
func silentListener(t *testing.T) string {
	return listen(t).Addr().String()
}
