package packaging

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// programs are the services that run this product.
var programs = []string{"migrate", "server", "worker"}

// loadCompose reads docker-compose.yml as docker compose does, with NAME=value lines as
// its environment and .env.
func loadCompose(t *testing.T, environ ...string) *types.Project {
	t.Helper()
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: root, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(root, "docker-compose.yml")}},
		Environment: types.NewMapping(environ),
	}, func(o *loader.Options) { o.SetProjectName("reliable-job-engine", false) })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// value is a variable of a service, empty if it is not set.
func value(s types.ServiceConfig, name string) string {
	if v := s.Environment[name]; v != nil {
		return *v
	}
	return ""
}

func TestServicesAndWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	want := map[string]map[string]string{
		"postgres": {},
		"migrate":  {"postgres": types.ServiceConditionHealthy},
		"server":   {"postgres": types.ServiceConditionHealthy, "migrate": types.ServiceConditionCompletedSuccessfully},
		"worker": {"postgres": types.ServiceConditionHealthy, "migrate": types.ServiceConditionCompletedSuccessfully,
			"mail": types.ServiceConditionStarted},
		"mail": {},
	}
	if got := slices.Sorted(maps.Keys(p.Services)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("services %v", got)
	}
	for name, waits := range want {
		got := map[string]string{}
		for on, d := range p.Services[name].DependsOn {
			got[on] = d.Condition
		}
		if !maps.Equal(got, waits) {
			t.Errorf("%s waits for %v, want %v", name, got, waits)
		}
	}
	if r := p.Services["worker"].Deploy.Replicas; r == nil || *r != 2 {
		t.Errorf("workers: %v, want 2", r)
	}
	for name, command := range map[string][]string{"migrate": {"jobctl", "migrate", "up"}, "server": {"server"}, "worker": {"worker"}} {
		if got := p.Services[name].Command; !slices.Equal(got, command) {
			t.Errorf("%s runs %q, want %q", name, got, command)
		}
	}
}

func TestEveryServiceIsConfined(t *testing.T) {
	t.Parallel()
	for name, s := range loadCompose(t).Services {
		if !s.ReadOnly || s.Privileged || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 ||
			!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: read-only %t, privileged %t, dropped %v, added %v, security %v", name, s.ReadOnly, s.Privileged, s.CapDrop, s.CapAdd, s.SecurityOpt)
		}
		if user, _, _ := strings.Cut(s.User, ":"); user == "" || user == "0" || user == "root" {
			t.Errorf("%s runs as %q", name, s.User)
		}
		if l := s.Deploy.Resources.Limits; l == nil || l.MemoryBytes <= 0 || l.NanoCPUs <= 0 || l.Pids <= 0 {
			t.Errorf("%s may take what it likes: %+v", name, l)
		}
		if s.Logging == nil || s.Logging.Options["max-size"] == "" || s.Logging.Options["max-file"] == "" {
			t.Errorf("%s may fill the disk with its log", name)
		}
		if want := map[bool]string{true: "no", false: "unless-stopped"}[name == "migrate"]; s.Restart != want {
			t.Errorf("%s restarts %q, want %q", name, s.Restart, want)
		}
		if checked := s.HealthCheck == nil && name == "server" || s.HealthCheck != nil && !s.HealthCheck.Disable; checked == (name == "migrate") {
			t.Errorf("%s: its health is asked for: %t", name, checked) // the server's is the image's
		}
		for _, m := range s.Volumes {
			if m.Type != types.VolumeTypeVolume {
				t.Errorf("%s mounts a %s of the host: %s", name, m.Type, m.Source)
			}
		}
		if s.NetworkMode != "" || s.Pid != "" || s.Ipc != "" {
			t.Errorf("%s shares a namespace of the host", name)
		}
	}
}

func TestPortsAreOnThisMachineAlone(t *testing.T) {
	t.Parallel()
	want := []string{"mail 127.0.0.1:8025:8025", "postgres 127.0.0.1:5432:5432", "server 127.0.0.1:8080:8080"}
	published := func(p *types.Project) []string {
		var got []string
		for name, s := range p.Services {
			for _, port := range s.Ports {
				got = append(got, name+" "+port.HostIP+":"+port.Published+":"+strconv.Itoa(int(port.Target)))
			}
		}
		slices.Sort(got)
		return got
	}
	if got := published(loadCompose(t)); !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	moved := []string{"mail 127.0.0.1:3:8025", "postgres 127.0.0.1:2:5432", "server 127.0.0.1:1:8080"}
	p := loadCompose(t, "SERVER_PORT=1", "DB_PORT=2", "MAIL_PORT=3")
	if got := published(p); !slices.Equal(got, moved) {
		t.Errorf("published %q, want %q", got, moved)
	}
	if s := p.Services["server"]; value(s, "SERVER_PORT") != "8080" || value(s, "DB_PORT") != "5432" || value(s, "PUBLIC_URL") != "http://localhost:1" {
		t.Errorf("inside, other ports than those published: %v", s.Environment)
	}
}

// secretName is that of a variable that holds a secret.
var secretName = regexp.MustCompile(`PASSWORD|TOKEN|SECRET|_URL$|_KEYS?$`)

func TestSecretsAreFilesAndEachServiceHasItsOwn(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	for name, s := range p.Secrets {
		dir, err := filepath.Abs(filepath.Join(root, "deploy/secrets"))
		if err != nil {
			t.Fatal(err)
		}
		file, err := filepath.Abs(s.File)
		if err != nil {
			t.Fatal(err)
		}
		if file != filepath.Join(dir, name) || s.Environment != "" || s.Content != "" {
			t.Errorf("secret %s is %+v, want the file deploy/secrets/%s", name, s, name)
		}
	}
	want := map[string][]string{"postgres": {"db_password"}, "migrate": {"db_password"}, "worker": {"db_password"},
		"server": {"bootstrap_admin_password", "bootstrap_token", "db_password"}, "mail": nil}
	for name, s := range p.Services {
		var got []string
		for _, x := range s.Secrets {
			got = append(got, x.Source)
		}
		slices.Sort(got)
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s is given %v, want %v", name, got, want[name])
		}
		for variable, v := range s.Environment {
			switch file, isFile := strings.CutSuffix(variable, "_FILE"); {
			case isFile:
				if secret := strings.TrimPrefix(*v, "/run/secrets/"); !slices.Contains(got, secret) {
					t.Errorf("%s: %s names %s, which it is not given", name, file, *v)
				}
			case secretName.MatchString(variable) && variable != "PUBLIC_URL" && *v != "":
				t.Errorf("%s: %s stands in docker-compose.yml", name, variable)
			}
		}
	}
}

func TestProgramsReachPostgresThroughASharedSocket(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	source := ""
	for _, m := range p.Services["postgres"].Volumes {
		if m.Target == "/var/run/postgresql" {
			source = m.Source
		}
	}
	for _, name := range programs {
		s := p.Services[name]
		shared := slices.ContainsFunc(s.Volumes, func(m types.ServiceVolumeConfig) bool {
			return source != "" && m.Source == source && m.Target == value(s, "DB_HOST") && m.ReadOnly && m.Volume.NoCopy
		})
		if !shared {
			t.Errorf("%s: %v holds no read-only share of Postgres's socket at %q", name, s.Volumes, value(s, "DB_HOST"))
		}
		if _, there := s.Networks["database"]; there {
			t.Errorf("%s is on Postgres's network", name)
		}
		if s.User != "10001:10001" || s.Image != p.Services["server"].Image || s.Build == nil {
			t.Errorf("%s runs %s as %s", name, s.Image, s.User)
		}
	}
	pg := p.Services["postgres"]
	major, err := strconv.Atoi(strings.TrimPrefix(pg.Image, "postgres:"))
	if err != nil || major < 16 {
		t.Errorf("image %s, want postgres:16 or newer", pg.Image)
	}
	if !slices.Contains(pg.HealthCheck.Test, "--host=127.0.0.1") {
		t.Errorf("%q is answered by the server that only prepares the database, which listens on the socket", pg.HealthCheck.Test)
	}
}

func TestContainersAreGivenTimeToDrain(t *testing.T) {
	t.Parallel()
	p := loadCompose(t, "WORKER_SHUTDOWN_TIMEOUT=1h", "JOB_TIMEOUT=1h")
	for _, name := range []string{"server", "worker"} {
		s := p.Services[name]
		drain, err := time.ParseDuration(value(s, "WORKER_SHUTDOWN_TIMEOUT"))
		if err != nil {
			t.Fatal(err)
		}
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= drain+2*time.Second {
			t.Errorf("%s is killed after %v, and drains for up to %s and 2 s", name, s.StopGracePeriod, drain)
		}
		limit, soft := int64(s.Deploy.Resources.Limits.MemoryBytes), value(s, "GOMEMLIMIT")
		mib, err := strconv.ParseInt(strings.TrimSuffix(soft, "MiB"), 10, 64)
		if err != nil || mib<<20 >= limit {
			t.Errorf("%s: GOMEMLIMIT %s with a limit of %d bytes", name, soft, limit)
		}
	}
}

// notPassed are settings that docker-compose.yml fixes by leaving them out, and why.
var notPassed = map[string]string{
	"APP_DEBUG": "production refuses it", "DATABASE_URL": "the DB_ parts say where", "DB_MIGRATE_URL": "there is no pooler",
	"SMTP_USER": "the catcher asks for none", "SMTP_PASSWORD": "the catcher asks for none", "JOBCTL_SERVER": "its default is right in the server's container",
	"JOBCTL_PROFILE": "JOBCTL_TOKEN is given, and the container holds no file of profiles",
}

// Every setting is fixed, or can be set from .env; and nothing is set that nobody reads.
func TestContainersKnowEverySettingAndNoOther(t *testing.T) {
	t.Parallel()
	known := settings(t)
	p := loadCompose(t)
	given := map[string]bool{}
	for _, name := range programs {
		for variable := range p.Services[name].Environment {
			plain, isFile := strings.CutSuffix(variable, "_FILE")
			given[plain] = true
			switch s, ok := known[plain]; {
			case variable == "GOMEMLIMIT": // Go's own
			case !ok:
				t.Errorf("%s: nobody reads %s", name, variable)
			case isFile && !s.secret:
				t.Errorf("%s: %s is no secret, so no %s is read", name, plain, variable)
			}
		}
	}
	for name := range known {
		if given[name] == (notPassed[name] != "") {
			t.Errorf("%s: docker-compose.yml passes it: %t; either add a line there, or to notPassed with the reason", name, given[name])
		}
	}
}

func TestDotEnvTunesTheContainersButDoesNotMoveThem(t *testing.T) {
	t.Parallel()
	p := loadCompose(t, "WORKER_CONCURRENCY=3", "RETENTION_DEAD=48h", "API_RATE_LIMIT=9/s", "AUTH_MODE=none", "APP_ENV=development", "APP_DEBUG=true",
		"DATABASE_URL=postgres://elsewhere/x", "DB_HOST=elsewhere", "DB_PASSWORD=x", "DB_PASSWORD_FILE=/x", "SERVER_HOST=127.0.0.1", "SMTP_HOST=smtp.example.com")
	s := p.Services["server"]
	for name, want := range map[string]string{
		"WORKER_CONCURRENCY": "3", "RETENTION_DEAD": "48h", "API_RATE_LIMIT": "9/s", "AUTH_MODE": "local", "APP_ENV": "production", "APP_DEBUG": "", "DATABASE_URL": "",
		"DB_HOST": "/run/postgresql", "DB_PASSWORD": "", "DB_PASSWORD_FILE": "/run/secrets/db_password", "SERVER_HOST": "0.0.0.0", "SMTP_HOST": "mail",
	} {
		if got := value(s, name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
}
