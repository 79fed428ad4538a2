package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"softib/capi/hostfiles"
	"softib/capi/rdmacm"
	"softib/driver/roce"
	"softib/internal/packetsock"
	"softib/internal/patience"
	"softib/internal/rundir"
	"softib/proto/ib"
)

func newRoCE() *cobra.Command {
	var linger time.Duration
	var asJSON, stop, detach bool
	cmd := &cobra.Command{
		Use:   "roce DEV[,DEV…]",
		Short: "Hold RoCEv2's port of Ethernet interfaces for programs",
		Long: `Holds UDP port 4791 at all addresses of DEV, an Ethernet interface of this machine, for
the programs that softib exec --roce DEV runs, and answers for their connection
manager (librdmacm), until Ctrl-C. Programs have sockets of their own: what they send
and receive does not pass through here.

There is no need to start it: the first softib exec --roce DEV does, in the
background, and it ends a minute after the last program. One process holds the port
of all interfaces that programs use; with -d it is told to hold DEV as well. With
--stop it lets go of DEV, and ends if that was the last: programs that use it lose
their connections.`,
		Example: `  softib roce eth0
  softib roce -d eth0,eth1      # in the background
  softib roce eth0 --stop
  softib exec --roce eth0 -- rping -s -a 192.0.2.1     # in another terminal`,
		Args: arguments(1, 1, "an interface"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := newRocePlace(args[0])
			if err != nil {
				return err
			}
			switch {
			case stop:
				return p.stop()
			case detach:
				return p.detach(cmd.Context(), linger)
			}
			return p.serve(cmd.Context(), linger, cmd.ErrOrStderr(), func(all []*roce.Server) error {
				for _, s := range all {
					if asJSON {
						if err := json.NewEncoder(cmd.OutOrStdout()).Encode(s.Config()); err != nil {
							return err
						}
						continue
					}
					var list []string
					for _, a := range s.Config().Addrs {
						list = append(list, a.String())
					}
					newTerminal(cmd.OutOrStdout()).say("%s: RoCEv2 at %s, MTU %d: softib exec --roce %[1]s -- "+
						"ib_write_bw", s.Name(), strings.Join(list, ", "), s.MTU().Bytes())
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "hold it in the background; return once it is held")
	cmd.Flags().DurationVar(&linger, "linger", 0, "end so long after the last program; 0 for never")
	cmd.Flags().BoolVar(&stop, "stop", false, "hold it no longer")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what is held as JSON, a line for each interface")
	return cmd
}

// rocePlace is where who holds interfaces' ports leaves its files. Ports are those of a network namespace, and so is
// the folder.
type rocePlace struct {
	devs []string
	dir  string
}

func newRocePlace(devs string) (rocePlace, error) {
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &st); err != nil {
		return rocePlace{}, err
	}
	p := rocePlace{strings.Split(devs, ","), filepath.Join(rundir.Dir(), fmt.Sprintf("roce-%d", st.Ino))}
	// What is wrong with an interface is said here, and not by a program that finds no device.
	for i, dev := range p.devs {
		if slices.Contains(p.devs[:i], dev) {
			return p, next(fmt.Errorf("%s is named twice in %s", dev, devs), "name each interface once")
		}
		if _, err := roce.FromInterface(dev); err != nil {
			return p, err
		}
	}
	if n := len(devs); n > rdmacm.HostMax {
		return p, next(fmt.Errorf("the interfaces' names have %d letters: want %d at most", n, rdmacm.HostMax),
			"name fewer of them")
	}
	if _, err := newPlace(defaultName); err != nil { // makes the folder, or says why not
		return p, err
	}
	if n := len(p.rdmacm()); n > socketPathMax {
		return p, next(fmt.Errorf("%s is %d bytes long: a socket's path has at most %d", p.rdmacm(), n, socketPathMax),
			"set XDG_RUNTIME_DIR to a folder with a shorter path")
	}
	return p, nil
}

// names are the interfaces as users write them.
func (p rocePlace) names() string { return strings.Join(p.devs, ",") }

func (p rocePlace) verbs() string  { return filepath.Join(p.dir, "verbs") }
func (p rocePlace) rdmacm() string { return filepath.Join(p.dir, "rdmacm") }
func (p rocePlace) files() string  { return filepath.Join(p.dir, "files") }
func (p rocePlace) log() string    { return filepath.Join(p.dir, "log") }

// stop has the ports held no longer.
func (p rocePlace) stop() error {
	err := roce.Release(p.verbs(), p.devs...)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return next(fmt.Errorf("nobody holds RoCEv2's port of %s", p.names()), "softib roce %s", p.names())
	}
	return err
}

// lock is for one process at a time, until the file is closed.
func (p rocePlace) lock() (*os.File, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// One that does not answer is about to end, or to begin.
	for limit := patience.New(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return f, nil
		}
		pid, err := roce.Holder(p.verbs())
		if err != nil && !limit.Over() {
			continue
		}
		f.Close()
		return nil, next(fmt.Errorf("process %d holds RoCEv2's port of this machine's interfaces already", pid),
			"softib exec --roce %s uses it, softib roce -d %[1]s has it hold %[1]s too, softib roce %[1]s --stop ends "+
				"that",
			p.names())
	}
}

// lockPatience is how long a process that holds ports may take to end or to begin.
const lockPatience = 10 * time.Second

// serve holds the ports until ctx ends, nobody has used them for so long, or all were released. Ready is called when
// programs can come; what happens then goes to out.
func (p rocePlace) serve(ctx context.Context, linger time.Duration, out io.Writer,
	ready func([]*roce.Server) error) error {
	lock, err := p.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.RemoveAll(p.files()); err != nil {
		return err
	}
	shown := roceFiles{dir: p.files(), sets: map[string]*hostfiles.Ethernet{}}
	say := func(line string) { fmt.Fprintf(out, "%s %s\n", time.Now().Format(time.DateTime), line) }
	x := roce.NewInterfaces(shown.show, say)
	defer x.Close()
	all, err := x.Hold(p.devs...)
	if err != nil {
		return err
	}
	forCM, err := packetsock.Listen(p.rdmacm())
	if err != nil {
		return err
	}
	defer forCM.Close()
	forVerbs, err := packetsock.Listen(p.verbs()) // the last: who finds it finds all
	if err != nil {
		return err
	}
	defer forVerbs.Close()
	if err := ready(all); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var served [3]error
	wg.Go(func() { served[0] = x.Serve(ctx, forVerbs); cancel() })
	wg.Go(func() { served[1] = rdmacm.Serve(ctx, forCM, rdmacm.OnEthernet(x)); cancel() })
	wg.Go(func() {
		served[2] = x.Watch(ctx, func() {
			if err := shown.refresh(x); err != nil {
				say(err.Error())
			}
		})
		cancel()
	})
	wg.Go(func() { shown.count(ctx, x, say) })
	wg.Go(func() { awaitIdle(ctx, x, linger); cancel() })
	wg.Wait()
	return errors.Join(served[:]...)
}

// roceFiles are what programs see in /sys, by the interfaces that they use.
type roceFiles struct {
	dir  string
	mu   sync.Mutex
	sets map[string]*hostfiles.Ethernet
}

// show makes the files of a program that uses some interfaces, and says where they are.
func (f *roceFiles) show(all []*roce.Server) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, s := range all {
		names = append(names, s.Name())
	}
	set := strings.Join(names, ",")
	dir := filepath.Join(f.dir, set)
	if f.sets[set] != nil {
		return dir, f.sets[set].Update(interfaceFiles(all))
	}
	var err error
	f.sets[set], err = hostfiles.NewEthernet(dir, adapterFiles, interfaceFiles(all))
	return dir, err
}

// refresh makes the files what the interfaces are now. What is held no longer stays as it was.
func (f *roceFiles) refresh(x *roce.Interfaces) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for set, tree := range f.sets {
		var all []*roce.Server
		for name := range strings.SplitSeq(set, ",") {
			if s, _ := x.Server(name); s != nil {
				all = append(all, s)
			}
		}
		if list := interfaceFiles(all); len(list) == strings.Count(set, ",")+1 {
			err = errors.Join(err, tree.Update(list))
		}
	}
	return err
}

// count writes counters once a second while there are programs, and once more after the last.
func (f *roceFiles) count(ctx context.Context, x *roce.Interfaces, say func(string)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for used := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if used {
			if err := f.refresh(x); err != nil {
				say(err.Error())
			}
		}
		used = x.Users() > 0
	}
}

// interfaceFiles is what interfaces' files say.
func interfaceFiles(all []*roce.Server) (list []hostfiles.Interface) {
	for _, s := range all {
		c := s.Counted()
		n := hostfiles.Counted{Engine: c.Engine}
		for counter, value := range map[ib.Counter]uint64{
			ib.PortXmitData: c.Link.SentBytes / 4, ib.PortRcvData: c.Link.ReceivedBytes / 4, // in words (IBA 16.1.3.5)
			ib.PortXmitPkts: c.Link.Sent, ib.PortRcvPkts: c.Link.Received,
			ib.PortUnicastXmitPkts: c.Link.Sent - c.Link.GroupSent, ib.PortMulticastXmitPkts: c.Link.GroupSent,
			ib.PortUnicastRcvPkts:   c.Link.Received - c.Link.GroupReceived,
			ib.PortMulticastRcvPkts: c.Link.GroupReceived,
			ib.PortXmitDiscards:     c.Link.Unsent, ib.PortRcvErrors: c.Link.Malformed, ib.LinkDownedCounter: c.Downs,
		} { // tidy: order-free
			n.Port[counter] = value
		}
		list = append(list, hostfiles.Interface{Name: s.Name(), GUID: s.GUID(), Info: s.PortInfo(), GIDs: s.GIDs(),
			Counted: n})
	}
	return list
}

// awaitIdle returns when interfaces are held no longer, or nobody has used them for so long, unless that is 0.
func awaitIdle(ctx context.Context, x *roce.Interfaces, linger time.Duration) {
	const looks = 10
	if linger == 0 {
		select {
		case <-ctx.Done():
		case <-x.Empty():
		}
		return
	}
	tick := time.NewTicker(max(linger/looks, time.Millisecond))
	defer tick.Stop()
	for idle := 0; idle < looks; {
		select {
		case <-ctx.Done():
			return
		case <-x.Empty():
			return
		case <-tick.C:
		}
		if idle++; x.Users() > 0 {
			idle = 0
		}
	}
}

// linger is how long what exec has started stays without programs.
const linger = time.Minute

// keep makes sure that the ports are held, and stay so for as long as the file is open in this process or in the
// program that it becomes. Who holds them is no child of that program: some wait for all that they have.
func (p rocePlace) keep(ctx context.Context) (*os.File, roce.View, error) {
	f, v, err := roce.Keep(p.verbs(), p.devs...)
	if err == nil || errors.Is(err, roce.ErrRefused) {
		return f, v, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, v, err
	}
	out, err := exec.CommandContext(ctx, exe, "roce", "-d", "--linger", linger.String(), "--",
		p.names()).CombinedOutput()
	if err != nil {
		return nil, v, fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(out)), "softib: "))
	}
	return roce.Keep(p.verbs(), p.devs...)
}

// ask has who holds ports hold these too.
func (p rocePlace) ask(linger time.Duration) error {
	if linger == 0 {
		return roce.Stay(p.verbs(), p.devs...)
	}
	f, _, err := roce.Keep(p.verbs(), p.devs...)
	if err == nil {
		f.Close()
	}
	return err
}

// detach holds the ports by a process in the background, and returns when they are held.
func (p rocePlace) detach(ctx context.Context, linger time.Duration) error {
	if err := p.ask(linger); err == nil || errors.Is(err, roce.ErrRefused) {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	keepDescriptors()
	child := exec.Command(exe, "roce", "--linger", linger.String(), "--", p.names())
	child.Stdout, child.Stderr, child.Dir = log, log, "/"
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see detach of fabrics
	if err := child.Start(); err != nil {
		return next(err, "softib roce %s in another terminal", p.names())
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		var over error
		select {
		case over = <-ended:
		case <-ctx.Done():
			_ = child.Process.Kill()
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		// Somebody else may have started one at the same time; then ours has ended.
		if err := p.ask(linger); err == nil || errors.Is(err, roce.ErrRefused) {
			return err
		}
		if over != nil {
			said, _ := io.ReadAll(io.NewSectionReader(log, begin, 1<<16))
			return fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(said)), "softib: "))
		}
	}
}
