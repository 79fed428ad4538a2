package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"softib/operate/manager/ufm"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Say who may use a fabric's page and REST interface",
		Long: `Keeps the users of a fabric's page, metrics and REST interface. As long as there is none, and the page
is on a loopback address, everybody on this machine may use it; the first user
changes that at once, also for a fabric that runs. Any other address needs one.

Passwords are kept as PBKDF2 hashes in the fabric's state folder.`,
		Example: `  softib user add operator              # asks for the password
  echo "$SECRET" | softib user add ci --password-stdin
  softib user list
  softib user remove ci`,
		Args: arguments(0, 0, "add, remove or list"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUserAdd(), newUserRemove(), newUserList())
	return cmd
}

// userPlace is where a fabric keeps its users.
type userPlace struct{ name, state string }

func (u *userPlace) flags(cmd *cobra.Command) {
	nameFlag(cmd, &u.name)
	cmd.Flags().StringVar(&u.state, "state", "", "the fabric's state is in `DIR`, as softib up --state has it")
}

func (u *userPlace) open() (*ufm.Credentials, error) {
	p, err := newPlace(u.name)
	if err != nil {
		return nil, err
	}
	dir, err := p.state(u.state)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, next(&usageError{errors.New("--state none keeps nothing, users neither")},
			"softib user --state DIR")
	}
	return ufm.OpenCredentials(dir)
}

func newUserAdd() *cobra.Command {
	var u userPlace
	var stdin, asJSON bool
	cmd := &cobra.Command{
		Use:     "add NAME",
		Short:   "Make a user, or give one another password",
		Example: `  softib user add operator`,
		Args:    arguments(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := u.open()
			if err != nil {
				return err
			}
			secret, err := readPassword(cmd, stdin)
			if err != nil {
				return err
			}
			if err := c.SetUser(args[0], secret); err != nil {
				return err
			}
			return showUsers(cmd, c, asJSON)
		},
	}
	u.flags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from the standard input")
	return cmd
}

func newUserRemove() *cobra.Command {
	var u userPlace
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Take a user away, with all tokens",
		Example: `  softib user remove ci`,
		Args:    arguments(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := u.open()
			if err != nil {
				return err
			}
			if err := c.RemoveUser(args[0]); err != nil {
				return next(err, "softib user list shows who there is")
			}
			return showUsers(cmd, c, asJSON)
		},
	}
	u.flags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newUserList() *cobra.Command {
	var u userPlace
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the users",
		Example: `  softib user list --json`,
		Args:    arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := u.open()
			if err != nil {
				return err
			}
			return showUsers(cmd, c, asJSON)
		},
	}
	u.flags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func showUsers(cmd *cobra.Command, c *ufm.Credentials, asJSON bool) error {
	list := c.Users()
	if asJSON {
		return printJSON(cmd.OutOrStdout(), list)
	}
	t := newTerminal(cmd.OutOrStdout())
	if len(list) == 0 {
		t.say("no users: on a loopback address, everybody on this machine may use it")
	}
	for _, name := range list {
		t.say("%s", name)
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
