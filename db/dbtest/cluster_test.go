//go:build unix

package dbtest

import (
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db"
)

// TestTheClusterNamedByTheEnvironmentIsUsed also has databases that killed test
// processes left there, long ago and just now.
func TestTheClusterNamedByTheEnvironmentIsUsed(t *testing.T) {
	s := NewServer(t)
	const old, recent = "rje_test_1000000000_1_7", "rje_test_99999999999_1_7"
	query(t, s, "CREATE DATABASE "+old)
	query(t, s, "CREATE DATABASE "+recent)
	t.Setenv("RJE_TEST_DATABASE_URL", s.URL("postgres"))
	c, err := newCluster()
	if err != nil {
		t.Fatal(err)
	}
	defer c.admin.Close(t.Context())
	name, err := c.clone()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchema(t.Context(), OpenURL(t, withDatabase(s.URL("postgres"), name))); err != nil {
		t.Error(err)
	}
	list := query(t, s, "SELECT datname FROM pg_database")
	for database, want := range map[string]bool{old: false, recent: true, name: true, c.template: true} {
		if strings.Contains(list, database) != want {
			t.Errorf("%s is among the databases: %v, want %v", database, !want, want)
		}
	}
}

func TestADatabaseIsGoneWhenItsTestEnds(t *testing.T) {
	t.Parallel()
	admin := New(t)
	var name string
	t.Run("the test", func(t *testing.T) {
		if err := New(t).QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	var there bool
	err := admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there)
	if err != nil || there {
		t.Errorf("database %s is still there: %v, %v", name, there, err)
	}
}
