ClusterId = 12
ProcId = 0
Owner = "alice"
JobStatus = 2
L = {1,2.5,"x",{3},[a=1;b={1}]}
N = [a=1;b="q\"uo";c=[d=2]]
S = "tab	back\slash <&> é"
R = 1.0
R2 = 1.5e300
R3 = 0.1
B = true
U = undefined
E = 1/0
EL = {}
EA = [ ]
X = foo + 1 =?= 3

ClusterId = 12
ProcId = 1
Owner = "bob"
JobStatus = 5

ClusterId = 12
ProcId = 2
Owner = "carol"
JobStatus = 1
I = -5
Big = 10000000000
Neg = -1.5
Zero = 0.0
T = 100000
Q = "with \"quotes\""
Empty = ""
Pct = "100%"
Req = (TARGET.Memory >= RequestMemory) && (TARGET.HasFileTransfer =?= true || !Foo)
Fn = ifThenElse(I > 0,"yes",strcat("no ",Owner))
