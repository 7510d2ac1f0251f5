# The second half of otp_oracle.txt: links, exit signals, and edges of GenServer.
# Run it with `elixir otp_oracle_links.exs`. Every line it prints is `what was done: what Elixir did`; processes are
# started in step, so it prints the same in every run.
Logger.configure(level: :emergency)
:logger.set_primary_config(:level, :emergency)
defmodule P do
  # A process that runs funs sent to it, reports EXIT messages it gets to `me`.
  def new(me, name, opts \\ []) do
    caller = self()
    pid = spawn(fn ->
      if opts[:trap], do: Process.flag(:trap_exit, true)
      send(caller, {:ready, self()})
      loop(me, name)
    end)
    receive do {:ready, ^pid} -> pid end
  end
  def loop(me, name) do
    receive do
      {:run, f, from} -> send(from, {:ran, f.()}); loop(me, name)
      {:cast, f} -> f.(); loop(me, name)
      {:EXIT, from, why} -> send(me, {name, {:EXIT, from, why}}); loop(me, name)
    end
  end
  def run(pid, f) do
    r = Process.monitor(pid)
    send(pid, {:run, f, self()})
    receive do {:ran, x} -> Process.demonitor(r, [:flush]); x
      {:DOWN, ^r, _, _, w} -> {:died, w} after 500 -> :timeout end
  end
end
defmodule G do
  use GenServer
  def init({:trap, me}) do Process.flag(:trap_exit, true); {:ok, me} end
  def init({:stop, r}), do: {:stop, r}
  def init(:raise), do: raise "boom"
  def init(:ignore), do: :ignore
  def init(:slow) do Process.sleep(300); {:ok, nil} end
  def init(me), do: {:ok, me}
  def handle_call({:run, f}, _f, s), do: {:reply, f.(), s}
  def handle_call({:stop, why, r}, _f, s), do: {:stop, why, r, s}
  def handle_cast({:run, f}, s) do f.(); {:noreply, s} end
  def handle_info(m, s) do if is_pid(s), do: send(s, {:info, m}); {:noreply, s} end
  def terminate(r, s) do if is_pid(s), do: send(s, {:terminated, r}); :ok end
end
defmodule Named do
  # The term, with an atom in place of each pid that has a name.
  def of(p, names) when is_pid(p), do: Map.get(names, p, p)
  def of(t, names) when is_tuple(t), do: t |> Tuple.to_list() |> Enum.map(&of(&1, names)) |> List.to_tuple()
  def of(x, _), do: x
end
me = self()
why = fn p, f -> r = Process.monitor(p); f.(); receive do {:DOWN, ^r, _, _, w} -> w after 150 -> :alive end end
flush = fn -> (fn f -> receive do x -> [x | f.(f)] after 60 -> [] end end).(fn g -> receive do x -> [x | g.(g)] after 60 -> [] end end) end
name = fn msgs, names -> for m <- msgs, do: Named.of(m, names) end
say = fn x, l -> IO.puts("#{l}: #{if is_binary(x), do: x, else: inspect(x)}") end
strip = fn {e, st} when is_list(st) -> {e, :stacktrace}; o -> o end

for reason <- [:boom, :shutdown, {:shutdown, :x}, :normal, :kill] do
  a = P.new(me, :a); b = P.new(me, :b)
  P.run(a, fn -> Process.link(b) end)
  w = why.(b, fn -> send(a, {:cast, fn -> exit(reason) end}) end)
  say.(w, "a exits #{inspect reason}, linked b not trapping ends with")
  a = P.new(me, :a); b = P.new(me, :b, trap: true)
  P.run(a, fn -> Process.link(b) end)
  w = why.(b, fn -> send(a, {:cast, fn -> exit(reason) end}) end)
  say.({w, Enum.map(flush.(), fn {n, {:EXIT, ^a, r}} -> {n, {:EXIT, :a, r}} end)}, "a exits #{inspect reason}, linked b trapping")
end
a = P.new(me, :a); b = P.new(me, :b); P.run(a, fn -> Process.link(b) end)
say.(why.(b, fn -> Process.exit(a, :kill) end), "a is killed by exit(a, :kill), linked b not trapping ends with")
a = P.new(me, :a); b = P.new(me, :b, trap: true); P.run(a, fn -> Process.link(b) end)
Process.exit(a, :kill); say.(Enum.map(flush.(), fn {n, {:EXIT, ^a, r}} -> {n, {:EXIT, :a, r}} end), "a is killed by exit(a, :kill), linked b trapping")
a = P.new(me, :a); b = P.new(me, :b); P.run(a, fn -> Process.link(b) end)
say.(why.(a, fn -> send(b, {:cast, fn -> exit(:boom) end}) end), "links are symmetric: b exits :boom, a ends with")
a = P.new(me, :a); b = P.new(me, :b); c = P.new(me, :c); P.run(a, fn -> Process.link(b) end); P.run(b, fn -> Process.link(c) end)
say.(why.(c, fn -> Process.exit(a, :boom) end), "a-b-c in a chain, exit(a, :boom), c ends with")
a = P.new(me, :a); b = P.new(me, :b, trap: true); P.run(a, fn -> Process.link(b); Process.link(b) end); P.run(b, fn -> Process.link(a) end)
send(a, {:cast, fn -> exit(:boom) end}); say.(length(flush.()), "linked three times, EXIT messages")
a = P.new(me, :a); b = P.new(me, :b); P.run(a, fn -> Process.link(b); Process.link(b) end); P.run(b, fn -> Process.unlink(a) end)
say.(why.(b, fn -> Process.exit(a, :boom) end), "linked twice, unlinked once by the other, a exits :boom, b")
a = P.new(me, :a, trap: true); dead = spawn(fn -> :ok end); Process.sleep(10)
P.run(a, fn -> Process.link(dead) end); say.({Process.alive?(a), Enum.map(flush.(), fn {n, {:EXIT, ^dead, r}} -> {n, {:EXIT, :dead, r}} end)}, "link to a dead process, trapping")
a = P.new(me, :a); say.(P.run(a, fn -> try do Process.link(dead) rescue e -> {:raised, e} catch k, r -> {k, r} end end), "link to a dead process, not trapping, what link does")
say.(Process.alive?(a), "link to a dead process, not trapping, alive after catching that")
a = P.new(me, :a); say.(strip.(why.(a, fn -> send(a, {:cast, fn -> Process.link(dead) end}) end)), "link to a dead process, not trapping, ends with")
a = P.new(me, :a); say.(P.run(a, fn -> Process.unlink(dead) end), "unlink of a dead process")
a = P.new(me, :a); say.(P.run(a, fn -> Process.link(self()) end), "link to self"); say.(Process.alive?(a), "alive after link to self")
a = P.new(me, :a, trap: true); b = P.new(me, :b)
say.(P.run(a, fn -> Process.link(b); Process.exit(b, :boom); Process.sleep(20); Process.unlink(b); receive do {:EXIT, ^b, w} -> {:EXIT, :b, w} after 0 -> :none end end), "unlink after the EXIT message arrived, which is still there")
a = P.new(me, :a); say.(why.(a, fn -> send(a, {:cast, fn -> Process.exit(self(), :normal) end}) end), "exit(self(), :normal) not trapping")
a = P.new(me, :a, trap: true); w = why.(a, fn -> send(a, {:cast, fn -> Process.exit(self(), :normal) end}) end); say.({w, name.(flush.(), %{a => :a})}, "exit(self(), :normal) trapping")
a = P.new(me, :a, trap: true); w = why.(a, fn -> Process.exit(a, :normal) end); say.({w, length(flush.())}, "exit(pid, :normal) from another, trapping")
a = P.new(me, :a, trap: true); say.(why.(a, fn -> send(a, {:cast, fn -> Process.exit(self(), :kill) end}) end), "exit(self(), :kill) trapping")
a = P.new(me, :a); w = why.(a, fn -> P.run(a, fn -> Process.flag(:trap_exit, true) end); Process.exit(a, :boom) end); say.({w, length(flush.())}, "trap_exit set at run time, exit(:boom)")
a = P.new(me, :a, trap: true); say.(why.(a, fn -> P.run(a, fn -> Process.flag(:trap_exit, false) end); Process.exit(a, :boom) end), "trap_exit taken back at run time, exit(:boom)")
# GenServer and its parent
starter = fn arg, trap -> a = P.new(me, :a, trap: trap); {a, P.run(a, fn -> GenServer.start_link(G, arg) end)} end
for reason <- [:normal, :shutdown, :boom] do
  {a, {:ok, g}} = starter.({:trap, me}, false)
  w = why.(g, fn -> send(a, {:cast, fn -> exit(reason) end}) end)
  say.({w, name.(flush.(), %{a => :a})}, "parent exits #{inspect reason}, linked server trapping")
  {a, {:ok, g}} = starter.(me, false)
  w = why.(g, fn -> send(a, {:cast, fn -> exit(reason) end}) end)
  say.({w, name.(flush.(), %{a => :a})}, "parent exits #{inspect reason}, linked server not trapping")
end
{a, {:ok, g}} = starter.({:trap, me}, false)
w = why.(g, fn -> P.run(a, fn -> Process.unlink(g); Process.exit(g, :boom) end) end); say.({w, name.(flush.(), %{a => :a})}, "unlinked parent sends exit(:boom), trapping")
{a, {:ok, g}} = starter.({:trap, me}, false)
w = why.(g, fn -> P.run(a, fn -> Process.exit(g, :normal) end) end); say.({w, name.(flush.(), %{a => :a})}, "parent sends exit(:normal), trapping")
{a, {:ok, g}} = starter.(me, false)
w = why.(g, fn -> P.run(a, fn -> Process.exit(g, :normal) end) end); say.({w, name.(flush.(), %{a => :a})}, "parent sends exit(:normal), not trapping")
b = P.new(me, :b); {_, {:ok, g}} = starter.({:trap, me}, false); GenServer.call(g, {:run, fn -> Process.link(b) end})
w = why.(g, fn -> Process.exit(b, :boom) end); say.({w, name.(flush.(), %{b => :b})}, "linked non-parent exits :boom, server trapping")
b = P.new(me, :b); {:ok, g} = GenServer.start(G, me); GenServer.call(g, {:run, fn -> Process.link(b) end})
w = why.(g, fn -> Process.exit(b, :boom) end); say.({w, name.(flush.(), %{b => :b})}, "linked exits :boom, server not trapping, terminate not called")
b = P.new(me, :b); {:ok, g} = GenServer.start(G, me); GenServer.call(g, {:run, fn -> Process.link(b) end})
say.(why.(b, fn -> try do GenServer.call(g, {:run, fn -> raise "boom" end}) catch _, _ -> :ok end end) |> strip.(), "server raises, linked b ends with"); flush.()
b = P.new(me, :b); {:ok, g} = GenServer.start(G, me); GenServer.call(g, {:run, fn -> Process.link(b) end})
say.(why.(b, fn -> GenServer.stop(g, :boom) end), "server stopped with :boom, linked b ends with"); flush.()
b = P.new(me, :b); {:ok, g} = GenServer.start(G, me); GenServer.call(g, {:run, fn -> Process.link(b) end})
say.(why.(b, fn -> GenServer.stop(g) end), "server stopped normally, linked b"); flush.()
# start_link failures
for {arg, n} <- [{{:stop, :cfg}, "{:stop, :cfg}"}, {:raise, "raise"}, {:ignore, ":ignore"}, {{:stop, :normal}, "{:stop, :normal}"}] do
  a = P.new(me, :a); r = P.run(a, fn -> GenServer.start_link(G, arg) end); Process.sleep(20)
  r = case r do {:error, x} -> {:error, strip.(x)}; {:died, x} -> {:died, strip.(x)}; o -> o end
  say.(if(Process.alive?(a), do: {:alive, r}, else: r), "start_link, init #{n}, starter not trapping")
  a = P.new(me, :a, trap: true); r = P.run(a, fn -> GenServer.start_link(G, arg) end)
  r = case r do {:error, x} -> {:error, strip.(x)}; o -> o end
  msgs = for {:a, {:EXIT, p, w}} <- flush.(), is_pid(p), do: {:EXIT, strip.(w)}
  say.({r, msgs}, "start_link, init #{n}, starter trapping")
end
a = P.new(me, :a, trap: true); r = P.run(a, fn -> GenServer.start_link(G, :slow, timeout: 50) end); say.({r, flush.()}, "start_link timeout, starter trapping")
a = P.new(me, :a); r = P.run(a, fn -> GenServer.start_link(G, :slow, timeout: 50) end); say.({r, Process.alive?(a)}, "start_link timeout, starter not trapping")
# stop
{:ok, g} = GenServer.start(G, nil); say.(try do GenServer.stop(g, :boom) catch k, r -> {k, r} end, "stop(pid, :boom) returns")
{:ok, g} = GenServer.start(G, nil); Process.exit(g, :kill); Process.sleep(10); say.(try do GenServer.stop(g) catch k, {r, _} -> {k, r}; k, r -> {k, r} end, "stop of a dead pid")
defmodule T do use GenServer; def init(x), do: {:ok, x}; def terminate(_, _), do: exit(:worse); def handle_call(:self_stop, _, s), do: {:reply, (try do GenServer.stop(self()) catch k, {r, _} -> {k, r}; k, r -> {k, r} end), s}; def handle_call(x, _, _), do: exit(x) end
{:ok, g} = GenServer.start(T, nil); say.(try do GenServer.stop(g) catch k, {r, _} -> {k, r}; k, r -> {k, r} end, "stop, but it ends for another reason")
{:ok, g} = GenServer.start(G, nil); spawn(fn -> try do GenServer.call(g, {:run, fn -> Process.sleep(100); exit(:worse) end}) catch _, _ -> :ok end end); Process.sleep(10); say.(try do GenServer.stop(g) catch k, {{r, _}, _} -> {k, r}; k, {r, _} -> {k, r} end, "stop, but it crashes before it gets to that")
{:ok, g} = GenServer.start(T, nil); say.(try do GenServer.call(g, :self_stop) catch k, {r, _} -> {k, r} end, "stop of self")
{:ok, g} = GenServer.start(G, nil); :sys.suspend(g); say.(try do GenServer.stop(g, :normal, 100) catch k, {r, _} -> {k, r}; k, r -> {k, r} end, "stop while suspended")
{:ok, g} = GenServer.start(G, nil); :sys.suspend(g); say.(why.(g, fn -> Process.exit(g, :boom) end), "exit(:boom) while suspended, not trapping")
{:ok, g} = GenServer.start_link(G, {:trap, me}); Process.flag(:trap_exit, true); :sys.suspend(g); w = why.(g, fn -> Process.exit(g, :shutdown) end); say.({w, flush.() |> Enum.map(fn {:EXIT, _, r} -> {:EXIT, r}; o -> o end)}, "exit(:shutdown) from the parent while suspended, trapping")
Process.flag(:trap_exit, false)
# monitors
a = P.new(me, :a); say.(P.run(a, fn -> r = Process.monitor(self()); receive do {:DOWN, ^r, _, _, w} -> w after 20 -> :none end end), "monitor of self")
a = P.new(me, :a); r1 = Process.monitor(a); r2 = Process.monitor(a); Process.demonitor(r1, [:flush]); Process.exit(a, :boom); say.(Enum.map(flush.(), fn {:DOWN, ^r2, _, _, w} -> w end), "monitored twice, demonitored once")
# replies
defmodule R do use GenServer; def init(x), do: {:ok, x}; def handle_call(:keep, f, _), do: {:noreply, f}; def handle_call(:twice, f, s) do GenServer.reply(f, 1); GenServer.reply(f, 2); {:noreply, s} end; def handle_call(:reply_and_reply, f, s) do GenServer.reply(f, 1); {:reply, 2, s} end; def handle_call(:get, _, s), do: {:reply, s, s}; def handle_cast(:die, _), do: exit(:boom) end
{:ok, g} = GenServer.start(R, nil); say.(GenServer.call(g, :twice), "replied twice, the caller gets"); flush.()
{:ok, g} = GenServer.start(R, nil); say.(GenServer.call(g, :reply_and_reply), "GenServer.reply and {:reply, ...}, the caller gets"); flush.()
{:ok, g} = GenServer.start(R, nil); spawn(fn -> Process.sleep(30); GenServer.cast(g, :die) end); say.(try do GenServer.call(g, :keep) catch k, {{r, _}, _} -> {k, r}; k, {r, _} -> {k, r} end, "server that kept From dies")
defmodule H do use GenServer; def init(x), do: {:ok, x, :hibernate}; def handle_call(:h, _, s), do: {:reply, :ok, s, :hibernate}; def handle_call(:get, _, s), do: {:reply, s, s}; def handle_info(_, s), do: {:noreply, s} end
{:ok, g} = GenServer.start(H, 7); Process.sleep(20); w1 = Process.info(g, :current_function); say.({elem(elem(w1, 1), 1), GenServer.call(g, :get), GenServer.call(g, :h), GenServer.call(g, :get)}, "hibernate in init and in a reply, then woken by calls")
{:ok, g} = GenServer.start(G, nil, hibernate_after: 20); Process.sleep(60); say.({elem(elem(Process.info(g, :current_function), 1), 1), GenServer.call(g, {:run, fn -> :woken end})}, "hibernate_after, then a call")
{:ok, g} = GenServer.start(R, nil); c = spawn(fn -> GenServer.call(g, :keep, 20) end); Process.sleep(60); f = GenServer.call(g, :get); say.({Process.alive?(c), GenServer.reply(f, :late)}, "reply to a caller that is gone")
{:ok, g} = GenServer.start(G, nil, name: :taken); a = P.new(me, :a, trap: true); r = P.run(a, fn -> GenServer.start_link(G, nil, name: :taken) end)
say.({(case r do {:error, {:already_started, ^g}} -> :already_started; o -> o end), flush.()}, "start_link, name taken, starter trapping"); GenServer.stop(g)
a = P.new(me, :a, trap: true); b = P.new(me, :b); P.run(a, fn -> Process.link(b); Process.unlink(b) end); Process.exit(b, :boom); say.(flush.(), "unlinked, then it exits :boom, messages")
a = P.new(me, :a, trap: true); b = P.new(me, :b); P.run(a, fn -> Process.link(b) end); P.run(b, fn -> Process.unlink(a) end); Process.exit(b, :boom); say.(flush.(), "unlinked by the other, then it exits :boom, messages")
a = P.new(me, :a, trap: true); b = P.new(me, :b); P.run(a, fn -> Process.link(b); Process.exit(b, :normal) end); say.({Process.alive?(b), flush.()}, "exit(pid, :normal) to a linked process, not trapping")
