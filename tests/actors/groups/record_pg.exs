# What pg does, on one node and on three; test_pg_recorded.py says what happens here. Run it with
# `ERL_EPMD_ADDRESS=127.0.0.1 elixir --sname recorder --erl "-kernel inet_dist_use_interface {127,0,0,1}" record_pg.exs`.
# Every line it prints is `where: what was done: what pg did`.
:logger.set_primary_config(:level, :none)
defmodule There do
  # Runs on each node: a scope, members by number, and one that is told what happens.
  def open do
    me = self()
    spawn(fn ->
      {:ok, _} = :pg.start_link(:scope)
      Process.register(self(), :told)
      {ref, _} = :pg.monitor_scope(:scope)
      send(me, :open)
      told(ref, [])
    end)
    receive do :open -> :ok end
  end
  defp told(ref, seen) do
    receive do
      {^ref, what, group, pids} -> told(ref, Enum.map(pids, fn _ -> {what, group} end) ++ seen)
      {:seen, from} -> send(from, {:seen, Enum.reverse(seen)}); told(ref, [])
      :again -> {:ok, _} = :pg.start_link(:scope); {ref, _} = :pg.monitor_scope(:scope); told(ref, seen)
      :trap -> Process.flag(:trap_exit, true); told(ref, seen)
      _ -> told(ref, seen)
    end
  end
  def seen do
    send(:told, {:seen, self()})
    receive do {:seen, seen} -> seen end
  end
  def member(name) do
    pid = spawn(fn -> receive do :stop -> :ok end end)
    Process.register(pid, name)
    :ok
  end
  def join(group, names), do: :pg.join(:scope, group, Enum.map(names, &Process.whereis/1))
  def leave(group, names), do: :pg.leave(:scope, group, Enum.map(names, &Process.whereis/1))
  def members(group), do: :pg.get_members(:scope, group) |> Enum.map(&node/1) |> Enum.map(&short/1) |> Enum.sort()
  def local(group), do: :pg.get_local_members(:scope, group) |> length()
  def groups, do: Enum.sort(:pg.which_groups(:scope))
  def local_groups, do: Enum.sort(:pg.which_local_groups(:scope))
  def stop(name) do send(name, :stop); Process.sleep(20) end
  def end_scope do send(:told, :trap); Process.exit(Process.whereis(:scope), :kill); Process.sleep(20) end
  def scope_again do send(:told, :again); Process.sleep(20) end
  def short(node), do: node |> Atom.to_string() |> String.split("@") |> hd() |> String.to_atom()
  def settle do Process.sleep(150); if Process.whereis(:scope), do: :sys.get_state(:scope); :ok end
end
source = File.read!(__ENV__.file) |> String.split("defmodule There do") |> Enum.at(1) |> String.split("\nend\n") |> hd()
start = fn name ->
  {:ok, peer, node} = :peer.start(%{name: name, connection: :standard_io, args: [~c"-connect_all", ~c"false",
    ~c"-setcookie", ~c"recorded", ~c"-kernel", ~c"dist_auto_connect", ~c"never", ~c"inet_dist_use_interface", ~c"{127,0,0,1}"]})
  :peer.call(peer, :code, :add_paths, [:code.get_path()])
  {:ok, _} = :peer.call(peer, Application, :ensure_all_started, [:elixir])
  :peer.call(peer, Code, :compile_string, ["defmodule There do" <> source <> "\nend"])
  :peer.call(peer, There, :open, [])
  {peer, node}
end
on = fn {peer, _}, function, args -> :peer.call(peer, There, function, args) end
connect = fn {peer, _}, {_, node} -> true = :peer.call(peer, :net_kernel, :connect_node, [node]) end
cut = fn {peer, _}, {_, node} -> :peer.call(peer, :erlang, :disconnect_node, [node]) end
settle = fn nodes -> Enum.each(nodes, fn n -> on.(n, :settle, []) end) end
say = fn what, x -> IO.puts("here: #{what}: #{inspect(x)}") end

# One node
{:ok, _} = :pg.start_link(:here)
pid = fn -> spawn(fn -> receive do :stop -> :ok end end) end
flush = fn ref -> (Stream.repeatedly(fn -> receive do {^ref, what, group, pids} -> Enum.map(pids, fn _ -> {what, group} end) after 30 -> nil end end) |> Enum.take_while(&(&1 != nil)) |> Enum.concat()) end
{all, there} = :pg.monitor_scope(:here)
say.("monitor_scope where nobody is", there)
p = pid.()
say.("join of one, and what is told", {:pg.join(:here, :a, p), flush.(all)})
say.("join of several in one call, one of them twice, and what is told", (fn -> [q, r] = [pid.(), pid.()]; {:pg.join(:here, :a, [q, r, q]), flush.(all)} end).())
say.("join of none, and what is told", {:pg.join(:here, :none, []), flush.(all)})
say.("groups after that", Enum.sort(:pg.which_groups(:here)))
dead = pid.(); Process.exit(dead, :kill); Process.sleep(20)
say.("join of one that has ended, and who is there in the end", {:pg.join(:here, :dead, dead), (Process.sleep(20); :pg.get_members(:here, :dead))})
flush.(all)
say.("members of a group that is not there", :pg.get_members(:here, :nobody))
say.("leave of a group that is not there, and what is told", {:pg.leave(:here, :nobody, p), flush.(all)})
{one, there} = :pg.monitor(:here, :a)
say.("monitor of one group: how many are there", length(there))
:pg.join(:here, :b, p)
say.("monitor of one group: what is told of another", flush.(one))
:pg.leave(:here, :a, p)
say.("monitor of one group: what is told of it", flush.(one))
say.("monitor of a group that is not there", elem(:pg.monitor(:here, :later), 1))
flush.(all)
:pg.join(:here, :b, pid.())
say.("demonitor, when something is told already, and what is left", {:pg.demonitor(:here, all), flush.(all)})
say.("demonitor of what is demonitored", :pg.demonitor(:here, all))
:pg.join(:here, :b, pid.())
say.("what is told after demonitor", flush.(all))
{:ok, _} = :pg.start_link(:other)
say.("members of a group of the same name in another scope", :pg.get_members(:other, :a))
say.("a scope of a name that is there already", (case :pg.start(:other) do {:error, {:already_started, _}} -> :error end))
say.("groups that 1, 1.0 and true are", (fn -> for g <- [1, 1.0, true], do: :pg.join(:other, g, p); length(:pg.which_groups(:other)) end).())
q = pid.(); :pg.join(:here, :x, [q, q]); :pg.join(:here, :y, q); {all, _} = :pg.monitor_scope(:here)
send(q, :stop); Process.sleep(30)
say.("what is told of the end of one that is in two groups, in one of them twice", Enum.sort(flush.(all)))

# Three nodes
say = fn what, x -> IO.puts("nodes: #{what}: #{inspect(x)}") end
[a, b, c] = nodes = Enum.map([:a, :b, :c], start)
connect.(a, b); connect.(b, c); connect.(a, c); settle.(nodes)
for {n, names} <- [{a, [:a1, :a2]}, {b, [:b1]}, {c, [:c1]}], name <- names, do: on.(n, :member, [name])
say.("join there: answer", on.(a, :join, [:room, [:a1, :a2]])); settle.(nodes)
say.("join there: members seen here", on.(b, :members, [:room]))
say.("join there: what is told here", on.(b, :seen, []))
say.("join there: local members here", on.(b, :local, [:room]))
say.("groups, and local groups, of who has no member", {on.(b, :groups, []), on.(b, :local_groups, [])})
on.(b, :join, [:room, [:b1, :b1]]); on.(c, :join, [:hall, [:c1]]); settle.(nodes)
say.("members on every node", for(n <- nodes, do: on.(n, :members, [:room])))
for n <- nodes, do: on.(n, :seen, [])
say.("join of a process of another node", (try do :peer.call(elem(a, 0), :erpc, :call, [elem(a, 1), :pg, :join, [:scope, :room, :peer.call(elem(b, 0), Process, :whereis, [:b1])]]) catch _, _ -> :error end))
settle.(nodes)
say.("leave there, once, of one that joined twice: answer", on.(b, :leave, [:room, [:b1]])); settle.(nodes)
say.("leave there: what is told here, and members", {on.(a, :seen, []), on.(a, :members, [:room])})
on.(a, :stop, [:a2]); settle.(nodes)
say.("a member there ends: what is told here, and members", {on.(c, :seen, []), on.(c, :members, [:room])})
for n <- nodes, do: on.(n, :seen, [])
cut.(a, b); settle.(nodes)
say.("a and b do not hear each other: members on every node", for(n <- nodes, do: on.(n, :members, [:room])))
say.("a and b do not hear each other: what is told on a and b and c", for(n <- nodes, do: on.(n, :seen, [])))
on.(a, :member, [:a3]); on.(a, :join, [:room, [:a3]]); on.(a, :leave, [:room, [:a1]]); on.(a, :member, [:a4]); on.(a, :join, [:late, [:a4]]); settle.(nodes)
say.("what a did meanwhile: members on b, and on c", for(n <- [b, c], do: on.(n, :members, [:room])))
for n <- nodes, do: on.(n, :seen, [])
connect.(a, b); settle.(nodes)
say.("a and b hear each other again: members on every node", for(n <- nodes, do: on.(n, :members, [:room])))
say.("a and b hear each other again: what is told on b, and on c", {Enum.sort(on.(b, :seen, [])), on.(c, :seen, [])})
on.(a, :end_scope, []); settle.(nodes)
say.("the scope of a ends: what is told on b", Enum.sort(on.(b, :seen, [])))
say.("the scope of a ends: members on b, and on a", {on.(b, :members, [:room]), (try do on.(a, :members, [:room]) catch _, _ -> [] end)})
on.(a, :scope_again, []); settle.(nodes)
say.("the scope of a runs again: members of b on a", Enum.filter(on.(a, :members, [:room]), & &1 == :b))
say.("the scope of a runs again: members of a on b", Enum.filter(on.(b, :members, [:room]), & &1 == :a))
for n <- nodes, do: on.(n, :seen, [])
:peer.stop(elem(c, 0)); settle.([a, b])
say.("node c ends: what is told on b", on.(b, :seen, []))
d = start.(:d); connect.(d, b); settle.([a, b, d])
say.("a node that knows b alone: members there", on.(d, :members, [:room]))
on.(d, :member, [:d1]); on.(d, :join, [:room, [:d1]]); settle.([a, b, d])
say.("a node that knows b alone: its member on a, and on b", for(n <- [a, b], do: :d in on.(n, :members, [:room])))
