// Package cmd_test guards the whole module: which package may import which, and who
// reads the environment.
package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module = "github.com/reliable-job-engine/reliable-job-engine/"
	root   = ".."
)

// rule is what one package may import.
type rule struct {
	may   []string // packages of this module; "*" is all of them
	tests []string // more, for its tests
	never []string // packages of others, by prefix, tests excepted
}

// outside is what a package below the web must not know.
var outside = []string{"github.com/labstack/echo", "github.com/a-h/templ", "github.com/amacneil/dbmate", "github.com/fergusstrange/embedded-postgres",
	"github.com/spf13/cobra", "github.com/prometheus", "net/http"}

// database is what code that is given its data must not know.
var database = []string{"github.com/jackc/pgx", "database/sql", "github.com/amacneil/dbmate"}

// mayImport has every package of the module. A new package needs a line here:
// whoever adds it decides where it stands. An arrow may be skipped, never turned.
//
//	cmd -> web -> web/api, web/console, web/ops -> engine/inspect -> engine -> engine/internal/dbsqlc
//	cmd -> db          web/console -> views -> static          web/api, web/console -> web/auth
var mayImport = map[string]rule{
	"cmd":                      {tests: []string{"*"}},
	"cmd/server":               {may: []string{"*"}},
	"cmd/worker":               {may: []string{"*"}},
	"cmd/jobctl":               {may: []string{"*"}},
	"cmd/internal/boot":        {may: []string{"*"}},
	"cmd/internal/samplejobs":  {may: []string{"cmd/internal/config", "cmd/internal/buildinfo", "engine", "engine/inspect"}, tests: []string{"engine/enginetest"}},
	"cmd/internal/bench":       {may: []string{"db", "engine"}},
	"cmd/internal/simulate":    {may: []string{"engine"}, tests: []string{"*"}, never: outside},
	"cmd/internal/config":      {},
	"cmd/internal/logging":     {tests: []string{"cmd/internal/config"}},
	"cmd/internal/buildinfo":   {},
	"cmd/internal/proctest":    {never: database},
	"db":                       {},
	"db/localpg":               {never: []string{"github.com/labstack/echo", "github.com/spf13/cobra"}},
	"db/dbtest":                {may: []string{"db", "db/localpg"}},
	"db/dbtest/moves":          {},
	"engine":                   {may: []string{"engine/internal/dbsqlc", "engine/internal/fault", "engine/internal/match", "engine/internal/rehearse", "engine/internal/schema", "engine/search"}, tests: []string{"engine/enginetest", "engine/inspect", "engine/verify"}, never: outside},
	"db/dbtest/network":        {},
	"engine/search":            {never: slices.Concat(outside, database)},
	"engine/internal/match":    {may: []string{"engine/internal/dbsqlc", "engine/search"}, never: outside},
	"engine/inspect":           {may: []string{"engine", "engine/internal/dbsqlc", "engine/internal/match", "engine/search"}, tests: []string{"engine/enginetest"}, never: outside},
	"engine/verify":            {may: []string{"engine", "engine/internal/dbsqlc"}, tests: []string{"*"}, never: outside},
	"engine/doctor":            {may: []string{"engine", "engine/inspect", "engine/internal/dbsqlc"}, tests: []string{"*"}, never: outside},
	"engine/enginetest":        {may: []string{"engine", "engine/internal/rehearse"}, tests: []string{"engine/inspect"}, never: outside},
	"engine/internal/schema":   {never: slices.Concat(outside, database)},
	"engine/internal/rehearse": {never: slices.Concat(outside, database)},
	"engine/access":            {may: []string{"engine", "engine/internal/dbsqlc"}, never: outside},
	"engine/internal/dbsqlc":   {never: outside},
	"engine/internal/fault":    {never: slices.Concat(outside, database)},
	"web":                      {may: []string{"web/api", "web/console", "web/auth", "web/ops", "web/overview", "views", "static", "engine/inspect", "engine"}, tests: []string{"engine/access", "engine/verify", "web/openapi"}},
	"web/openapi":              {never: slices.Concat(outside, database)},
	"web/api":                  {may: []string{"web/auth", "web/openapi", "web/overview", "engine/inspect", "engine/search", "engine"}, never: database},
	"web/console":              {may: []string{"web/auth", "web/openapi", "web/overview", "views", "static", "engine/access", "engine/inspect", "engine/search", "engine"}, never: database},
	"web/overview":             {may: []string{"engine/inspect"}, never: slices.Concat(outside, database)},
	"web/ops":                  {may: []string{"engine/inspect", "engine"}, never: []string{"github.com/a-h/templ"}},
	"web/auth":                 {may: []string{"engine/access", "engine"}, never: database},
	"views":                    {may: []string{"static"}, never: slices.Concat(database, []string{"github.com/labstack/echo"})},
	"static":                   {never: slices.Concat(database, []string{"github.com/labstack/echo", "github.com/a-h/templ"})},
	"examples/orders":          {may: []string{"engine"}, tests: []string{"engine/enginetest"}, never: outside},
	"e2e/mutants":              {},
	"e2e":                      {tests: []string{"*"}},
	"e2e/chaos":                {tests: []string{"*"}},
	"e2e/chaos/worker":         {may: []string{"db", "engine"}},
}

// forTests is what any package's tests may import: the real database, set up.
var forTests = []string{"db", "db/dbtest", "db/dbtest/moves", "db/dbtest/network", "db/localpg"}

// file is one Go file as far as the rules go.
type file struct {
	name    string   // from the root, with slashes
	imports []string // paths as written
	environ []string // os.Getenv and its like, as called
}

func (f file) pkg() string  { return path.Dir(f.name) }
func (f file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func TestImportsFlowOneWay(t *testing.T) {
	t.Parallel()
	files := parseModule(t)
	if len(files) < 10 {
		t.Fatalf("only %d Go files found", len(files))
	}
	for _, complaint := range complaints(files, mayImport) {
		t.Error(complaint)
	}
}

// readsEnvironment are the packages that may ask for a variable.
var readsEnvironment = []string{
	"cmd/internal/config",
	"db/dbtest", // only tests link it, and they may be pointed at a server of one's own
}

// isTold is the one file beside them: a parent tells its child by a variable that it is one.
const isTold = "engine/isolate_child.go"

func TestOnlyConfigReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	readers := map[string]bool{}
	for _, f := range parseModule(t) {
		if len(f.environ) == 0 || f.isTest() || f.name == isTold && len(f.environ) == 1 { // a test that starts itself again tells the child by a variable
			continue
		}
		readers[f.pkg()] = true
		if !slices.Contains(readsEnvironment, f.pkg()) {
			t.Errorf("%s uses %s; in the product cmd/internal/config alone reads the environment", f.name, strings.Join(f.environ, ", "))
		}
	}
	if !readers["cmd/internal/config"] {
		t.Error("cmd/internal/config is not seen to read the environment: this test looks for the wrong thing")
	}
}

// The table itself must not turn an arrow.
func TestTableHasNoCircle(t *testing.T) {
	t.Parallel()
	var visit func(name string, trail []string)
	visit = func(name string, trail []string) {
		if slices.Contains(trail, name) {
			t.Fatalf("circle: %s", strings.Join(append(trail, name), " -> "))
		}
		for _, to := range mayImport[name].may {
			if to == "*" {
				continue
			}
			if _, known := mayImport[to]; !known {
				t.Errorf("%s may import %s, which has no line of its own", name, to)
			}
			visit(to, append(slices.Clone(trail), name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mayImport)) {
		visit(name, nil)
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	t.Parallel()
	files := []file{
		{name: "engine/claim.go", imports: []string{"context", module + "engine/internal/dbsqlc", "github.com/jackc/pgx/v5"}},
		{name: "engine/bad.go", imports: []string{module + "web", "github.com/labstack/echo/v4", "net/http"}},
		{name: "engine/claim_test.go", imports: []string{module + "db/dbtest", module + "engine/enginetest", "net/http", module + "engine"}},
		{name: "engine/bad_test.go", imports: []string{module + "web/api"}},
		{name: "views/jobs.go", imports: []string{module + "engine", module + "db"}},
		{name: "cmd/server/main.go", imports: []string{module + "web", module + "views"}},
		{name: "engine/util/x.go"},
		{name: "web/web.go", imports: []string{strings.TrimSuffix(module, "/")}},
	}
	want := []string{
		"engine/bad.go must not import web",
		"engine/bad.go must not import github.com/labstack/echo/v4",
		"engine/bad.go must not import net/http",
		"engine/bad_test.go must not import web/api",
		"views/jobs.go must not import engine",
		"views/jobs.go must not import db",
		"package engine/util has no line in mayImport: decide what it may import",
		"web/web.go must not import .",
	}
	if d := cmp.Diff(want, complaints(files, mayImport)); d != "" {
		t.Errorf("complaints (-want +got):\n%s", d)
	}
}

// complaints are the files that break the rules, in the files' order.
func complaints(files []file, rules map[string]rule) []string {
	var list []string
	unknown := map[string]bool{}
	for _, f := range files {
		r, known := rules[f.pkg()]
		if !known {
			if !unknown[f.pkg()] {
				list = append(list, "package "+f.pkg()+" has no line in mayImport: decide what it may import")
			}
			unknown[f.pkg()] = true
			continue
		}
		for _, imported := range f.imports {
			if to, ours := within(imported); ours && !mayReach(f, r, to) {
				list = append(list, f.name+" must not import "+to)
			} else if !ours && !f.isTest() && hasPrefix(r.never, imported) {
				list = append(list, f.name+" must not import "+imported)
			}
		}
	}
	return list
}

func mayReach(f file, r rule, to string) bool {
	allowed := r.may
	if f.isTest() {
		allowed = slices.Concat(r.may, r.tests, forTests, []string{f.pkg()})
	}
	return slices.Contains(allowed, "*") || slices.Contains(allowed, to)
}

// within is an import path from the module's root, if it is one of the module's.
func within(imported string) (string, bool) {
	if imported == strings.TrimSuffix(module, "/") {
		return ".", true
	}
	return strings.CutPrefix(imported, module)
}

func hasPrefix(prefixes []string, imported string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return imported == p || strings.HasPrefix(imported, p+"/") })
}

// parseModule reads every Go file of the module, whatever its build constraints;
// go list would leave out those of other systems.
func parseModule(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(name)
		}
		if strings.HasSuffix(name, ".go") {
			f, err := parseFile(name)
			files = append(files, f)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// skipFolder leaves out what the go command leaves out: hidden folders, testdata, other modules.
func skipFolder(name string) error {
	base := filepath.Base(name)
	if name == root {
		return nil
	}
	if base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func parseFile(name string) (file, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	relative, err := filepath.Rel(root, name)
	if err != nil {
		return file{}, err
	}
	f := file{name: filepath.ToSlash(relative)}
	for _, i := range parsed.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, imported)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && (x.Name == "os" || x.Name == "syscall") &&
				slices.Contains([]string{"Getenv", "LookupEnv", "ExpandEnv"}, s.Sel.Name) {
				f.environ = append(f.environ, x.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return f, nil
}
