# What :global does with names, on three nodes; test_names_recorded.py says what happens here. Run it with
# `ERL_EPMD_ADDRESS=127.0.0.1 elixir --sname recorder --erl "-kernel inet_dist_use_interface {127,0,0,1}" record_global.exs`.
# Every line it prints is `what was done: what :global did`.
:logger.set_primary_config(:level, :none)
defmodule There do
  def holder do
    spawn(fn -> receive do :stop -> :ok end end)
  end
  def register(name, pid), do: :global.register_name(name, pid)
  def again(name, pid), do: :global.re_register_name(name, pid)
  def unregister(name), do: :global.unregister_name(name)
  def whereis(name), do: :global.whereis_name(name)
  def alive(pid), do: Process.alive?(pid)
  def stop(pid) do send(pid, :stop); Process.sleep(50) end
  def settle do Process.sleep(200); :global.sync(); :ok end
  def watch(pid) do
    me = self()
    spawn(fn -> ref = Process.monitor(pid); send(me, :ok); r = receive do {:DOWN, ^ref, _, _, r} -> r end; Process.register(self(), :saw); receive do {:reason, from} -> send(from, {:reason, r}) end end)
    receive do :ok -> :ok end
  end
  def reason do
    case Process.whereis(:saw) do nil -> :none; p -> send(p, {:reason, self()}); receive do {:reason, r} -> r end end
  end
end
source = File.read!(__ENV__.file) |> String.split("defmodule There do") |> Enum.at(1) |> String.split("\nend\n") |> hd()
start = fn name ->
  {:ok, peer, node} = :peer.start(%{name: name, connection: :standard_io, args: [~c"-setcookie", ~c"recorded",
    ~c"-kernel", ~c"dist_auto_connect", ~c"never", ~c"prevent_overlapping_partitions", ~c"false", ~c"inet_dist_use_interface", ~c"{127,0,0,1}"]})
  :peer.call(peer, :code, :add_paths, [:code.get_path()])
  {:ok, _} = :peer.call(peer, Application, :ensure_all_started, [:elixir])
  :peer.call(peer, :logger, :set_primary_config, [:level, :none])
  :peer.call(peer, Code, :compile_string, ["defmodule There do" <> source <> "\nend"])
  {peer, node}
end
on = fn {peer, _}, function, args -> :peer.call(peer, There, function, args, 20_000) end
connect = fn {peer, _}, {_, node} -> true = :peer.call(peer, :net_kernel, :connect_node, [node]) end
cut = fn {peer, _}, {_, node} -> :peer.call(peer, :erlang, :disconnect_node, [node]) end
settle = fn nodes -> Enum.each(nodes, fn n -> on.(n, :settle, []) end) end
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end

[a, b, c] = nodes = Enum.map([:a, :b, :c], start)
connect.(a, b); connect.(b, c); connect.(a, c); settle.(nodes)
p = on.(a, :holder, []); q = on.(b, :holder, [])
say.("whereis of a name that nobody has", on.(a, :whereis, [:ledger]))
say.("register of a free name", on.(a, :register, [:ledger, p]))
say.("register of a name that another node has", on.(b, :register, [:ledger, q]))
say.("whereis on every node is the holder", for(n <- nodes, do: on.(n, :whereis, [:ledger]) == p))
say.("the holder registers it once more", on.(a, :register, [:ledger, p]))
say.("another takes it without asking", on.(b, :again, [:ledger, q])); settle.(nodes)
say.("whereis on every node is who has taken it", for(n <- nodes, do: on.(n, :whereis, [:ledger]) == q))
say.("one that is not the holder unregisters it", (on.(c, :unregister, [:ledger]); settle.(nodes); on.(a, :whereis, [:ledger])))
say.("register after that", on.(a, :register, [:ledger, p]))
on.(a, :stop, [p]); settle.(nodes)
say.("the holder ends: whereis", on.(b, :whereis, [:ledger]))
say.("the holder ends: register by another", on.(b, :register, [:ledger, q])); settle.(nodes)
say.("a second name for it", on.(b, :register, [:second, q]))
r = on.(c, :holder, [])
say.("two register a free name at once: how many have it", (fn ->
  [x, y] = [Task.async(fn -> on.(a, :register, [:race, on.(a, :holder, [])]) end), Task.async(fn -> on.(c, :register, [:race, r]) end)] |> Enum.map(&Task.await(&1, 20_000))
  Enum.count([x, y], & &1 == :yes) end).())
# A cut: c alone, a and b together
cut.(c, a); cut.(c, b); settle.(nodes)
say.("a cut: whereis where the holder is, and on the other side", {on.(a, :whereis, [:ledger]) == q, on.(c, :whereis, [:ledger])})
say.("a cut: register on the other side", on.(c, :register, [:ledger, r]))
say.("a cut: how many hold the name", length(Enum.uniq([on.(a, :whereis, [:ledger]), on.(c, :whereis, [:ledger])])))
on.(b, :watch, [q]); on.(c, :watch, [r])
connect.(c, a); connect.(c, b); Process.sleep(1500); settle.(nodes)
say.("the cut is over: how many hold the name", length(Enum.uniq(for(n <- nodes, do: on.(n, :whereis, [:ledger])))))
say.("the cut is over: how many of the two holders live", Enum.count([on.(b, :alive, [q]), on.(c, :alive, [r])], & &1))
say.("the cut is over: how the other one ended", Enum.find([on.(b, :reason, []), on.(c, :reason, [])], & &1 != :none))
holder = on.(a, :whereis, [:ledger])
say.("the node of the holder ends: whereis, and register by another", (fn ->
  {gone, left} = if holder == q, do: {b, c}, else: {c, b}
  :peer.stop(elem(gone, 0)); settle.([a, left])
  {on.(a, :whereis, [:ledger]), on.(left, :register, [:ledger, on.(left, :holder, [])])} end).())
