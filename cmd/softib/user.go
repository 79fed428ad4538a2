package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"softib/operate/control"
	"softib/operate/manager/ufm"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Say who may use a fabric's page and REST interface",
		Long: `Keeps the users of a fabric's page, metrics and REST interface. As long as there is none, and the page
is on a loopback address, everybody on this machine may use it; the first user
changes that at once, also for a fabric that runs. Any other address needs one.

Passwords are kept as PBKDF2 hashes in the fabric's state folder; those of a fabric
that runs without one (softib up --state none) end with it.`,
		Example: `  softib user add operator              # asks for the password
  echo "$SECRET" | softib user add ci --password-stdin
  softib user list
  softib user remove ci`,
	}
	return family(cmd, newUserAdd(), newUserRemove(), newUserList())
}

// userRequest asks for the users, after one was added or taken away if it says so.
type userRequest struct {
	Add    string `json:"add,omitempty"`
	Secret string `json:"secret,omitempty"`
	Remove string `json:"remove,omitempty"`
	// State is the folder that the command line names; empty if it names none.
	State string `json:"state,omitempty"`
}

// userList are the users that there are then.
type userList struct {
	Names []string `json:"names"`
	// Fleeting ones end with the fabric, which keeps nothing.
	Fleeting bool `json:"fleeting,omitempty"`
}

// userCommand is what all of them have.
type userCommand struct {
	name, state string
	asJSON      bool
}

func (u *userCommand) flags(cmd *cobra.Command) *cobra.Command {
	nameFlag(cmd, &u.name)
	cmd.Flags().StringVar(&u.state, "state", "", "the fabric's state is in `DIR`, as softib up --state has it; needed "+
		"for one that does not run")
	jsonFlag(cmd, &u.asJSON)
	return cmd
}

// run asks the fabric if it runs, so that what is asked for is in force when it has answered, wherever it keeps its
// state; else it changes what the fabric will find.
func (u *userCommand) run(cmd *cobra.Command, q userRequest) error {
	p, err := newPlace(u.name)
	if err != nil {
		return err
	}
	dir, err := p.state(u.state)
	if err != nil {
		return err
	}
	var list userList
	if p.isRunning() {
		if q.State = u.state; u.state != "" && u.state != stateNone {
			q.State = dir
		}
		err = askFabric(cmd.Context(), p, opUser, q, func(l userList) error { list = l; return nil })
	} else {
		if dir == "" {
			return next(&usageError{errors.New("--state none keeps nothing, users neither")},
				"softib user --state DIR, or softib up -d%s --state none first", p.flag())
		}
		var c *ufm.Credentials
		if c, err = ufm.OpenCredentials(dir); err == nil {
			list, err = changeUsers(c, q)
		}
	}
	if err != nil {
		return err
	}
	return showUsers(cmd, list, u.asJSON)
}

// changeUsers does what is asked for.
func changeUsers(c *ufm.Credentials, q userRequest) (list userList, err error) {
	switch {
	case q.Add != "":
		if err := c.SetUser(q.Add, q.Secret); err != nil {
			return list, next(err, "softib user add NAME asks again")
		}
	case q.Remove != "":
		if err := c.RemoveUser(q.Remove); err != nil {
			return list, next(err, "softib user list shows who there is")
		}
	}
	return userList{Names: c.Users()}, nil
}

// user changes or lists the users of this fabric.
func (s *server) user(_ context.Context, q userRequest, r *control.Reply[userList]) error {
	has := s.f.users.Dir()
	if has == "" {
		has = stateNone
	}
	if q.State != "" && q.State != has {
		return next(&usageError{fmt.Errorf("fabric %s keeps its state elsewhere: %s", s.f.name, has)},
			"leave --state out for this fabric; --name OTHER --state DIR is for one that does not run")
	}
	list, err := changeUsers(s.f.users, q)
	if err != nil {
		return err
	}
	list.Fleeting = has == stateNone
	return r.Say(list)
}

func newUserAdd() *cobra.Command {
	var u userCommand
	var stdin bool
	cmd := u.flags(&cobra.Command{
		Use:     "add NAME",
		Short:   "Make a user, or give one another password",
		Example: `  softib user add operator`,
		Args:    arguments(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := readPassword(cmd, stdin)
			if err != nil {
				return err
			}
			if args[0] == "" {
				return next(&usageError{errors.New("a user has no name")}, "softib user add NAME")
			}
			return u.run(cmd, userRequest{Add: args[0], Secret: secret})
		},
	})
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from the standard input")
	return cmd
}

func newUserRemove() *cobra.Command {
	var u userCommand
	return u.flags(&cobra.Command{
		Use:     "remove NAME",
		Short:   "Take a user away, with all tokens",
		Example: `  softib user remove ci`,
		Args:    arguments(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return next(&usageError{errors.New("no user has an empty name")}, "softib user list shows who there is")
			}
			return u.run(cmd, userRequest{Remove: args[0]})
		},
	})
}

func newUserList() *cobra.Command {
	var u userCommand
	return u.flags(&cobra.Command{
		Use:     "list",
		Short:   "List the users",
		Example: `  softib user list --json`,
		Args:    arguments(0, 0, "no argument"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.run(cmd, userRequest{}) },
	})
}

func showUsers(cmd *cobra.Command, list userList, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), list.Names)
	}
	t := newTerminal(cmd.OutOrStdout())
	if len(list.Names) == 0 {
		t.say("no users: on a loopback address, everybody on this machine may use it")
	}
	for _, name := range list.Names {
		t.say("%s", name)
	}
	if list.Fleeting && len(list.Names) > 0 {
		t.say("until the fabric ends, which keeps no state")
	}
	return nil
}

// passwordRead is how much is read of a password: more than any may have, so that one that is longer is refused.
const passwordRead = 4096

// readPassword asks for a password, twice and without showing it, or reads one line.
func readPassword(cmd *cobra.Command, stdin bool) (string, error) {
	fd := int(os.Stdin.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if stdin || err != nil {
		if !stdin {
			return "", next(&usageError{errors.New("the standard input is no terminal to ask for a password on")},
				"softib user add NAME --password-stdin")
		}
		line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), passwordRead)).ReadString('\n')
		if err != nil && !(errors.Is(err, io.EOF) && line != "") {
			return "", fmt.Errorf("no password came: %w", err)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	quiet := *old
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
		return "", err
	}
	defer func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }()
	in := bufio.NewReader(os.Stdin)
	var said [2]string
	for i, ask := range []string{"password: ", "again: "} {
		fmt.Fprint(cmd.ErrOrStderr(), ask)
		line, err := in.ReadString('\n')
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("no password came: %w", err)
		}
		said[i] = strings.TrimRight(line, "\r\n")
	}
	if said[0] != said[1] {
		return "", next(errors.New("the two are different"), "softib user add again")
	}
	return said[0], nil
}
