package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// tables are the engine's. A role that runs it needs to select, insert, update
// and delete in each; of migrationsTable it reads alone. No rights of its owner:
// migrations may be another role's work.
var tables = []string{
	"api_tokens", "console_sessions", "console_users", "dead_letter_jobs", "idempotency_keys", "integrity_checks", "job_claims", "job_executions", "job_held", "job_live",
	"job_ready", "job_scheduled", "job_stats_deltas", "job_stats_minutes", "job_stop_requests", "job_types", "job_unique_keys", "jobs", "leaders", "maintenance_tasks",
	"operation_jobs", "operations", "operator_action_head", "operator_actions", "owed_callbacks", "queues", "refused_writes", "sign_in_tries", "signing_secrets", "workers",
}

// views are the engine's too, and only read, but for the door of SQL's producers.
var views = []string{"job_inbox", "job_states"}

const migrationsTable = "schema_migrations"

func (v *visit) rights(ctx context.Context) (Check, error) {
	s, err := v.q.DoctorServer(ctx, v.Pool)
	if err != nil {
		return Check{}, err
	}
	rows, err := v.q.DoctorRights(ctx, v.Pool, slices.Concat(tables, views, []string{migrationsTable}))
	if err != nil {
		return Check{}, err
	}
	schema, err := v.q.DoctorSchemaRights(ctx, v.Pool)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Check{Verdict: Unchecked, Evidence: "the engine's tables are not in this database", Remedy: "Make them with: jobctl migrate up"}, nil
	case err != nil:
		return Check{}, err
	case len(rows) == 0 && schema.MayUse:
		return problem(fmt.Sprintf("ALTER ROLE %s SET search_path = %s", quoted(s.Role), quoted(schema.Name)),
			"the engine's tables are in schema %s, which is not in the search_path of role %s", schema.Name, s.Role)
	}
	var missing, grants []string
	for _, r := range rows {
		if lacks := lacking(r); len(lacks) > 0 {
			missing = append(missing, strings.Join(lacks, ", ")+" on "+r.Name)
			grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(lacks, ", "), quoted(r.Name), quoted(s.Role)))
		}
	}
	if !schema.MayUse {
		missing = append(missing, "USAGE on schema "+schema.Name)
		grants = append(grants, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", quoted(schema.Name), quoted(s.Role)))
	}
	if len(schema.NotCallable) > 0 {
		missing = append(missing, "EXECUTE on "+some(schema.NotCallable))
		grants = append(grants, fmt.Sprintf("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s", quoted(schema.Name), quoted(s.Role)))
	}
	if len(missing) == 0 {
		return ok("role %s may do what the engine does", s.Role)
	}
	if len(grants) > 3 {
		grants = []string{fmt.Sprintf("GRANT USAGE ON SCHEMA %[1]s TO %[2]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s; "+
			"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s", quoted(schema.Name), quoted(s.Role))}
	}
	return problem(strings.Join(grants, "; "), "role %s lacks %s", s.Role, some(missing))
}

// lacking is what the engine needs of a table and the role has not.
func lacking(r dbsqlc.DoctorRightsRow) (lacks []string) {
	only := r.Name == migrationsTable || slices.Contains(views, r.Name)
	for _, x := range []struct {
		name string
		has  bool
	}{{"SELECT", r.MaySelect}, {"INSERT", r.MayInsert || only}, {"UPDATE", r.MayUpdate || only}, {"DELETE", r.MayDelete || only}} {
		if !x.has {
			lacks = append(lacks, x.name)
		}
	}
	return lacks
}

// some names up to three things.
func some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:2], "; "), len(names)-2)
	}
	return strings.Join(names, "; ")
}
