package db_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

var update = flag.Bool("update", false, "write db/schema.sql anew")

// schema.sql is what the migrations add up to, for reading and for review: a
// migration that is not in it, or a change of it without one, fails here.
func TestSchemaFileIsCurrent(t *testing.T) {
	t.Parallel()
	var dump bytes.Buffer
	if err := db.Dump(t.Context(), dbtest.NewURL(t), &dump); err != nil {
		t.Fatal(err)
	}
	const file = "schema.sql"
	if *update {
		if err := os.WriteFile(file, dump.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), dump.String()); diff != "" {
		t.Errorf("%s is not what the migrations make; run: go test ./db -run TestSchemaFileIsCurrent -update\n%s", file, diff)
	}
}
