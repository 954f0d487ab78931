C     PHNX makes events. Each has a vertex and up to 12 tracks with momentum and
C     direction; they go to unit 10 as unformatted records, one for each event.
      PROGRAM PHNX
      INTEGER NEV, MAXTR
      PARAMETER (NEV = 40000, MAXTR = 12)
      INTEGER IEV, NTR, ITR, K
      REAL VERTEX(3), TRACK(4, MAXTR), FLAT
      DO 30 IEV = 1, NEV
         DO 10 K = 1, 3
            VERTEX(K) = 2.0 * FLAT() - 1.0
   10    CONTINUE
         NTR = 1 + INT(MAXTR * FLAT())
         DO 20 ITR = 1, NTR
            TRACK(1, ITR) = 0.5 + 9.5 * FLAT()
            DO 20 K = 2, 4
               TRACK(K, ITR) = 2.0 * FLAT() - 1.0
   20    CONTINUE
         WRITE (10) IEV, NTR, VERTEX, ((TRACK(K, ITR), K = 1, 4),
     +              ITR = 1, NTR)
   30 CONTINUE
      WRITE (*, '(I8, A)') NEV, ' events made'
      END
C
C     Equal numbers on every machine: 16807 modulo 2**31 - 1 (Park and Miller).
      REAL FUNCTION FLAT()
      INTEGER SEED, HIGH
      SAVE SEED
      DATA SEED / 4711 /
      HIGH = SEED / 127773
      SEED = 16807 * (SEED - HIGH * 127773) - 2836 * HIGH
      IF (SEED .LT. 0) SEED = SEED + 2147483647
      FLAT = REAL(SEED / 256) / 8388608.0
      END
